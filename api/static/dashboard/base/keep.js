// Answers that are expensive for the server, kept for a while: a page is drawn far more often than
// what they say changes.

/**
 * Return a function that reads again only if `key` is another one or the kept answer is old. An answer
 * that failed is not kept.
 * @template T
 * @param {number} seconds
 * @returns {(key: string, read: () => Promise<T>) => Promise<T>}
 */
export function keepFor(seconds) {
  let kept = { key: null, until: 0, answer: null };
  return (key, read) => {
    if (kept.key !== key || performance.now() > kept.until) {
      const answer = read();
      const mine = kept = { key, until: performance.now() + 1000 * seconds, answer };
      answer.catch(() => { if (kept === mine) kept = { key: null, until: 0, answer: null }; });
    }
    return kept.answer;
  };
}
