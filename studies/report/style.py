"""The style sheet of the page."""

CSS = """
:root { --ink:#0f172a; --soft:#475569; --line:#e2e8f0; --paper:#fff; --wash:#f8fafc; --accent:#2563eb;
  --good:#047857; --bad:#b91c1c; }
* { box-sizing:border-box }
body { margin:0; background:var(--wash); color:var(--ink);
  font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif }
main { max-width:1080px; margin:0 auto; padding:28px 20px 60px }
header { padding:6px 0 14px }
h1 { font-size:27px; line-height:1.2; margin:0 0 6px; letter-spacing:-.01em }
h2 { font-size:18px; margin:0 0 4px }
.lead { color:var(--soft); margin:0 }
section { background:var(--paper); border:1px solid var(--line); border-radius:12px;
  padding:20px 22px 16px; margin:16px 0 }
section > p { color:var(--soft); margin:2px 0 12px }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(150px,1fr)); gap:12px; margin:14px 0 4px }
.card { background:var(--paper); border:1px solid var(--line); border-radius:12px; padding:14px 16px }
.card b { display:block; font-size:23px; letter-spacing:-.01em; line-height:1.25 }
.card span { color:var(--soft); font-size:13px }
.findings { margin:6px 0 2px; padding-left:20px }
.findings li { margin:5px 0 }
.wide { overflow-x:auto }
table { border-collapse:collapse; width:100%; font-size:13px; font-variant-numeric:tabular-nums }
th,td { text-align:right; padding:7px 7px; border-bottom:1px solid var(--line); white-space:nowrap }
th { color:var(--soft); font-weight:600; white-space:normal; vertical-align:bottom; border-bottom:2px solid var(--line) }
th:first-child,td:first-child { text-align:left; white-space:normal; min-width:150px }
td.left,th.left { text-align:left; white-space:normal }
td small { display:block; color:var(--soft); font-size:11.5px }
tr.base td:first-child::after { content:"base"; font-size:11px; color:var(--accent); margin-left:7px;
  border:1px solid currentColor; border-radius:5px; padding:0 5px }
.better { color:var(--good) } .worse { color:var(--bad) }
svg { width:100%; height:auto; display:block; overflow:visible }
svg text { font:11.5px system-ui,sans-serif; fill:var(--soft) }
svg .end { text-anchor:end } svg .mid { text-anchor:middle }
svg .label { font-size:12px } svg .on-bar { fill:#fff; text-anchor:middle; font-weight:600 }
svg .grid { stroke:var(--line) } svg .axis { stroke:#94a3b8 }
svg .limit { stroke:var(--bad); stroke-dasharray:6 4 } svg .limit-name { fill:var(--bad); text-anchor:end }
svg .waited { fill:#cbd5e1 }
.legend { display:flex; flex-wrap:wrap; gap:4px 16px; font-size:12.5px; color:var(--soft); margin:8px 0 2px }
.legend i { display:inline-block; width:11px; height:11px; border-radius:3px; margin-right:6px }
.tabs > input { position:absolute; opacity:0 }
.tabs > label { display:inline-block; padding:4px 11px; margin:0 6px 10px 0; border:1px solid var(--line);
  border-radius:999px; font-size:13px; cursor:pointer; color:var(--soft) }
.tabs > input:checked + label { background:var(--accent); border-color:var(--accent); color:#fff }
.tabs > input:focus-visible + label { outline:2px solid var(--accent); outline-offset:2px }
.tabs > div { display:none }
footer { color:var(--soft); font-size:12.5px; margin-top:22px }
@media print { body { background:#fff } section { break-inside:avoid } }
"""
