// The server: questions with the token if there is one, its clock, and the stream of what happens.

const TOKEN = "muster-token";
const PAGE = 1000;
const PAGES_MAX = 20;

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.code = problem.code;
  }
}

// What the server's clock shows, which is not the browser's where time runs fast.
export const clock = { now: Date.now() / 1000 };

function headers(more) {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

export function keepToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

async function send(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: headers(options.headers ?? {}) });
  const shown = Number(answer.headers.get("Muster-Time"));
  if (shown) clock.now = shown;
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

export const get = async (path) => (await send(path)).json();
export const getText = async (path) => (await send(path)).text();

export async function change(path) {
  const key = `dashboard-${Date.now()}-${Math.random().toString(36).slice(2)}`;
  return (await send(path, { method: "POST", headers: { "Idempotency-Key": key } })).json();
}

// Every item of a listing, page after page, up to a bound.
export async function all(path) {
  const items = [];
  let after = "";
  for (let page = 0; page < PAGES_MAX; page++) {
    const found = await get(`${path}?limit=${PAGE}${after && `&after=${encodeURIComponent(after)}`}`);
    items.push(...found.items);
    if (found.next === null) break;
    after = found.next;
  }
  return items;
}

// Hears every event behind a position until the stream ends; throws when it breaks. An EventSource
// could not carry the token.
export async function hear(after, heard) {
  const answer = await send(`/v1/events?after=${after}`, { headers: { Accept: "text/event-stream" } });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("id:")) heard(Number(line.slice(3)));
  }
}
