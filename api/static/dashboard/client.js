// Every request that these pages send. One function per route; a test compares the paths and methods
// with the OpenAPI document. Types are in types.js.

/** @import * as t from "./types.js" */

const TOKEN = "muster-token";
const PAGE = 1000;
const PAGES_MAX = 20;
const SECONDS_MAX = 30;

/** The server refused: `status`, a stable `code`, and a sentence for people. */
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.code = problem.code ?? "";
    this.field = problem.field ?? "";
  }
}

/** No answer came. */
export class Unreachable extends Error {}

// ---------------------------------------------------------------- the server's clock

const clock = { server: Date.now() / 1000, local: performance.now() / 1000, rate: 1, isKnown: false };
// Two readings that are closer together than this say little about the rate.
const RATE_S_MIN = 1;

/** Return the server's time, which runs faster than the browser's where the cluster is simulated. */
export function now() {
  return clock.server + (performance.now() / 1000 - clock.local) * clock.rate;
}

/** Return how many of the server's seconds pass in one of the browser's, as far as it is known. */
export const clockRate = () => clock.rate;

function keepTime(header) {
  const server = Number(header), local = performance.now() / 1000;
  const passed = local - clock.local;
  if (!server || (clock.isKnown && passed < RATE_S_MIN)) return;
  if (clock.isKnown) clock.rate = Math.max(0, (server - clock.server) / passed);
  Object.assign(clock, { server, local, isKnown: true });
}

// ---------------------------------------------------------------- sending

export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;
export const keepToken = (token) => sessionStorage.setItem(TOKEN, token);

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function send(path, { signal, ...options } = {}) {
  let answer;
  try {
    const limit = AbortSignal.timeout(SECONDS_MAX * 1000);
    answer = await fetch(path, {
      ...options,
      headers: headers(options.headers ?? {}),
      signal: signal ?? limit,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("The server does not answer.");
  }
  keepTime(answer.headers.get("Muster-Time"));
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

/** Return a path with encoded values, relative to the page. No value may lead to another route. */
function path(strings, ...values) {
  if (values.some((value) => ["", ".", ".."].includes(String(value))))
    throw new Refused(404, { detail: "There is nothing at this address." });
  return String.raw({ raw: strings }, ...values.map(encodeURIComponent));
}

/** Return a query string; a list repeats its name; null, undefined and "" are left out. */
function withQuery(base, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== null && each !== undefined && each !== "") parameters.append(name, each);
  const text = parameters.toString();
  return text ? `${base}?${text}` : base;
}

const get = async (base, query) => (await send(withQuery(base, query))).json();

/**
 * An answer about an instant: `at` and `position` name the event after which it was true.
 * @template T
 * @typedef {{data: T, at: number, position: number}} Dated
 */

/** @returns {Promise<Dated<any>>} */
async function getDated(base, query) {
  const answer = await send(withQuery(base, query));
  const position = Number(answer.headers.get("Muster-Position")), at = Number(answer.headers.get("Muster-At"));
  return { data: await answer.json(), at, position };
}
const getText = async (base, query) => (await send(withQuery(base, query))).text();
const post = (base, body, query) => change("POST", base, body, query);
const put = (base, body, query) => change("PUT", base, body, query);
const patch = (base, body, query) => change("PATCH", base, body, query);
const remove = (base, query) => change("DELETE", base, undefined, query);

async function change(method, base, body, query) {
  const sent = { "Idempotency-Key": crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}` };
  if (body !== undefined) sent["Content-Type"] = typeof body === "string" ? "application/yaml" : "application/json";
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  const answer = await send(withQuery(base, query), { method, headers: sent, body: text });
  return answer.status === 204 ? null : answer.json();
}

/** Return every item of a listing, page after page, up to a bound. @returns {Promise<Dated<any[]>>} */
async function all(list) {
  const items = [];
  let after = "", answer = null;
  for (let page = 0; page < PAGES_MAX; page++) {
    answer = await list({ limit: PAGE, after });
    items.push(...answer.data.items);
    if (answer.data.next === null) break;
    after = answer.data.next;
  }
  return { ...answer, data: items };
}

// ---------------------------------------------------------------- jobs

/** In place of a change, ask what it would do: the answer is a Preview. */
export const DRY_RUN = { dry_run: true };

/** @returns {Promise<Dated<{items: t.JobView[], next: string|null}>>} */
export const listJobs = (query) => getDated(path`v1/jobs`, query);
/** @returns {Promise<Dated<t.JobCounts>>} */
export const countJobs = (query) => getDated(path`v1/counts/jobs`, query);
/** @returns {Promise<Dated<t.JobDetail>>} */
export const getJob = (namespace, name, query) => getDated(path`v1/jobs/${namespace}/${name}`, query);
/** @returns {Promise<Dated<t.WhyAnswer>>} */
export const getWhy = (namespace, name, query) => getDated(path`v1/jobs/${namespace}/${name}/why`, query);
/** @returns {Promise<Dated<t.Story>>} */
export const getStory = (namespace, name, query) => getDated(path`v1/jobs/${namespace}/${name}/story`, query);
/** @returns {Promise<t.LogLines>} */
export const getLogs = (namespace, name, query) => get(path`v1/jobs/${namespace}/${name}/logs`, query);
/** @returns {Promise<Object>} */
export const getManifest = (namespace, name, query) => get(path`v1/jobs/${namespace}/${name}/manifest`, query);
/** @returns {Promise<Object>} */
export const getRank = (namespace, name, rank) => get(path`v1/jobs/${namespace}/${name}/ranks/${rank}`);
export const submitJob = (manifest, query) => post(path`v1/jobs`, manifest, query);
export const suspendJob = (namespace, name, query) => post(path`v1/jobs/${namespace}/${name}/suspend`, undefined, query);
export const resumeJob = (namespace, name, query) => post(path`v1/jobs/${namespace}/${name}/resume`, undefined, query);
export const cancelJob = (namespace, name, query) => post(path`v1/jobs/${namespace}/${name}/cancel`, undefined, query);
export const scaleJob = (namespace, name, body, query) => post(path`v1/jobs/${namespace}/${name}/scale`, body, query);
export const retryJob = (namespace, name, body, query) => post(path`v1/jobs/${namespace}/${name}/retry`, body, query);
export const rerunJob = (namespace, name, body) => post(path`v1/jobs/${namespace}/${name}/rerun`, body);
export const amendJob = (namespace, name, body, query) => patch(path`v1/jobs/${namespace}/${name}`, body, query);
export const deleteJob = (namespace, name, query) => remove(path`v1/jobs/${namespace}/${name}`, query);
/** @returns {Promise<t.BulkResults>} */
export const changeJobs = (body) => post(path`v1/jobs/bulk`, body);

// ---------------------------------------------------------------- the cluster

/** @returns {Promise<t.ClusterView>} */
export const getCluster = () => get(path`v1/cluster`);
/** @returns {Promise<Dated<t.WaitingLine>>} */
export const getLine = (query) => getDated(path`v1/line`, query);
/** @returns {Promise<Dated<t.NodeView[]>>} */
export const listNodes = (query) => all((page) => getDated(path`v1/nodes`, { ...query, ...page }));
/** @returns {Promise<Dated<t.NodeView>>} */
export const getNode = (name, query) => getDated(path`v1/nodes/${name}`, query);
export const cordonNode = (name, query) => post(path`v1/nodes/${name}/cordon`, undefined, query);
export const uncordonNode = (name, query) => post(path`v1/nodes/${name}/uncordon`, undefined, query);
export const drainNode = (name, query) => post(path`v1/nodes/${name}/drain`, undefined, query);
export const forgetNode = (name, query) => post(path`v1/nodes/${name}/forget`, undefined, query);
/** Make a node of a simulated cluster fail. */
export const failNode = (name, body) => post(path`v1/nodes/${name}/faults`, body);
/** @returns {Promise<Dated<t.QueueView[]>>} */
export const listQueues = (query) => all((page) => getDated(path`v1/queues`, { ...query, ...page }));
export const defineQueue = (name, settings, query) => put(path`v1/queues/${name}`, settings, query);
export const removeQueue = (name, query) => remove(path`v1/queues/${name}`, query);
/** @returns {Promise<Dated<Object>>} */
export const getPolicy = (query) => getDated(path`v1/policy`, query);
export const setPolicy = (policy, query) => put(path`v1/policy`, policy, query);
/** @returns {Promise<{devices: t.DeviceView[], problem: string}>} */
export const getTelemetry = () => get(path`v1/telemetry`);
/** @returns {Promise<t.Readiness>} */
export const getReadiness = () => get(path`readyz`);

// ---------------------------------------------------------------- the log and the past

/** @returns {Promise<t.EventPage>} */
export const listEvents = (query) => get(path`v1/events`, query);
/** @returns {Promise<t.LogBounds>} */
export const getHistory = (query) => get(path`v1/history`, query);
/** @returns {Promise<t.Marks>} */
export const getMarks = (query) => get(path`v1/history/marks`, query);
/** @returns {Promise<t.Usage>} */
export const getUsage = (query) => get(path`v1/history/usage`, query);
/** @returns {Promise<t.Failures>} */
export const getFailures = (query) => get(path`v1/history/failures`, query);
/** @returns {Promise<t.Timeline>} */
export const getTimeline = (query) => get(path`v1/history/timeline`, query);
/** @returns {Promise<t.Outlook>} */
export const getOutlook = (query) => get(path`v1/forecasts/outlook`, query);
/** @returns {Promise<Object>} */
export const getAnalysis = (query) => get(path`v1/analysis`, query);
/** @returns {Promise<Object>} */
export const verifyLog = () => get(path`v1/log/verify`);

/**
 * Call `heard` with each event behind a position until the stream ends; throw when it breaks.
 * `alive` is called whenever bytes arrive. An EventSource could not carry the token.
 */
export async function followEvents(after, { heard, alive, signal }) {
  const answer = await send(withQuery(path`v1/events`, { after }), {
    headers: { Accept: "text/event-stream" },
    signal,
  });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    alive();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) heard(JSON.parse(line.slice(5)));
  }
}

/** @returns {Promise<t.IncidentView>} */
export const getIncident = (query) => get(path`v1/incident`, query);
/** @returns {Promise<string>} */
export const getIncidentPage = (query) => getText(path`v1/incident/page`, query);
/** @returns {Promise<t.AnnotationList>} */
export const listAnnotations = () => get(path`v1/annotations`);
export const addAnnotation = (wanted) => post(path`v1/annotations`, wanted);
export const removeAnnotation = (id) => remove(path`v1/annotations/${id}`);

// ---------------------------------------------------------------- studies

/** @returns {Promise<{studies: t.StudyView[]}>} */
export const listStudies = () => get(path`v1/studies`);
export const askWhatIf = (question) => post(path`v1/studies/whatif`, question);
export const cancelStudy = (id) => remove(path`v1/studies/${id}`);
/** @returns {Promise<t.StudyView>} */
export const getStudy = (id) => get(path`v1/studies/${id}`);
/** @returns {Promise<t.StudyChoices>} */
export const getStudyChoices = () => get(path`v1/studies/choices`);
/** @returns {Promise<Object>} */
export const getStudyResult = (id) => get(path`v1/studies/${id}/result`);
/** @returns {Promise<t.StudyFindings>} */
export const getFindings = (id) => get(path`v1/studies/${id}/findings`);
/** @returns {Promise<string>} */
export const getReport = (id) => getText(path`v1/studies/${id}/report`);
/** @returns {Promise<t.ForkResult>} */
export const getForkResult = getStudyResult;
/** @returns {Promise<t.StudyView>} */
export const startFork = (wanted) => post(path`v1/forks`, wanted);
/** @returns {Promise<t.Accuracy>} */
export const getForecastAccuracy = () => get(path`v1/forecasts`);
