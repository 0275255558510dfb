// The style sheet of the page.
#pragma once

namespace official::report {

// Colours that people who confuse red and green can tell apart; evaluations are dashed, so that no colour is needed to
// tell them from training. The contrast of text is at least 4.5 : 1 in both schemes.
inline constexpr char kPageStyle[] = R"css(
:root {
  color-scheme: light dark;
  --back: #fff; --card: #f6f7f9; --text: #1c1f24; --weak: #59616d; --line: #d5d9e0; --mark: #fff3c4; --bad: #b3261e;
  --c0: #0068b3; --c1: #c24e00; --c2: #00795a; --c3: #a63d84; --c4: #7a6200; --c5: #1b74a6; --c6: #5b4bb5; --c7: #555;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14161a; --card: #1e2127; --text: #e8eaee; --weak: #a3abb8; --line: #3a404b; --mark: #4a3f14; --bad: #ff8a80;
    --c0: #5ab4f5; --c1: #ff9d5c; --c2: #3fd1a4; --c3: #ec8fcb; --c4: #e6cb4d; --c5: #9bd8ff; --c6: #b3a7ff; --c7: #bbb;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 84rem; margin: 0 auto; padding: 1rem; }
h1, h3, li, td { overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .25rem 0 .75rem; }
h2 { font-size: 1.2rem; margin: 2rem 0 .75rem; }
h3 { font-size: 1rem; margin: 1rem 0 .5rem; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0 0 1rem; padding: 0; }
.swatch { width: 1.5rem; height: .5rem; margin-right: .4rem; vertical-align: middle; }
.graphs { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .75rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  min-width: 0; }
figcaption { font-weight: 600; margin-bottom: .25rem; overflow-wrap: anywhere; }
figure > svg { display: block; width: 100%; height: auto; }
.grid line { stroke: var(--line); stroke-width: 1; }
.ticks text { fill: var(--weak); font: 12px system-ui, sans-serif; }
path { fill: none; stroke: var(--c); stroke-width: 1.75; stroke-linejoin: round; }
circle, rect { fill: var(--c); }
circle { stroke: var(--card); stroke-width: .75; }
.graphs path { stroke-opacity: .75; }
.graphs .eval path { stroke-dasharray: 5 3; stroke-opacity: 1; }
.eval path { stroke-dasharray: 5 3; }
.nan { fill: var(--bad); font: bold 14px sans-serif; }
.key { --c: var(--text); }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); }
.c4 { --c: var(--c4); } .c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .c7 { --c: var(--c7); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  min-width: 5rem; font-variant-numeric: tabular-nums; }
tbody th { font-weight: normal; color: var(--weak); }
.graphs th, .graphs td { min-width: 0; white-space: nowrap; }
.graphs .ops tbody th { min-width: 8rem; white-space: normal; overflow-wrap: anywhere; }
.differs th, .differs td { background: var(--mark); color: var(--text); }
details { margin-top: .5rem; }
summary { cursor: pointer; padding: .5rem 0; }
.images { display: flex; flex-wrap: wrap; gap: .5rem; }
.images figure { padding: .5rem; }
.images img { width: 84px; height: auto; image-rendering: pixelated; border: 1px solid var(--line); }
.samples { list-style: none; margin: 0; padding: 0; display: grid; gap: .5rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 9rem), 1fr)); }
.of-text { grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); }
.samples li { padding: .5rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  font-size: .875rem; min-width: 0; }
.samples .wrong { border-color: var(--bad); }
.samples img { width: 112px; max-width: 100%; height: auto; image-rendering: pixelated; }
.samples dl { margin: 0; overflow-wrap: anywhere; }
.samples dt { color: var(--weak); }
.samples dd { margin: 0 0 .25rem; }
.samples strong { color: var(--bad); }
@media print { details { display: block; } }
)css";

}  // namespace official::report
