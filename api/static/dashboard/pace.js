// How soon a page is drawn again when something happened. On a quiet cluster at once; on a busy one at a
// slow pace, so that many open browsers cost the server little. It is a token bucket: a few draws in a row
// are quick, and then one comes back every few seconds, later if loading takes long.

const QUICK_MAX = 3;
const QUICK_MS = 250;
const PERIOD_MS = 4000;
// Loading may take this share of the time.
const LOAD_SHARE_MAX = 0.1;

export function makePace(now = () => performance.now()) {
  const bucket = { tokens: QUICK_MAX, at: now(), period: PERIOD_MS };

  return {
    /** Take a token, and return how many milliseconds to wait before the draw. */
    wait() {
      const tokens = Math.min(QUICK_MAX, bucket.tokens + (now() - bucket.at) / bucket.period);
      Object.assign(bucket, { tokens: tokens - 1, at: now() });
      return tokens >= 1 ? QUICK_MS : (1 - tokens) * bucket.period;
    },
    /** Report how long loading took, in milliseconds. */
    loaded(ms) {
      bucket.period = Math.max(PERIOD_MS, ms / LOAD_SHARE_MAX);
    },
  };
}
