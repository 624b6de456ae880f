// The first script, which stands in the document: the browser paints it before it fetches and compiles the modules.
//
// A template holds their links, so that nothing of them is fetched before; then they are fetched together, not level by level.

/** A page that is not painted begins anyway. */
const PAINT_MAX_MS = 200;

// The name and the values are those of `main.js`.
const theme = localStorage.getItem('millrace-theme');
if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
await new Promise((resolve) => {
  if (document.hidden) resolve();
  new PerformanceObserver(resolve).observe({ type: 'paint', buffered: true });
  setTimeout(resolve, PAINT_MAX_MS);
});
document.head.append(document.getElementById('modules').content);
await import('./page/{{version}}/main.js');
