// The first script: the browser paints the document before it fetches and compiles the modules.
//
// A template holds their links, so that nothing of them is fetched before; together they are fetched at once, not level by level.

import { showTheme, storedTheme } from './theme.js';

/** A page that gets no frame begins anyway. */
const PAINT_MAX_MS = 100;

showTheme(storedTheme());
await new Promise((resolve) => {
  if (document.hidden) resolve(undefined);
  // The first frame is painted after its callbacks.
  requestAnimationFrame(() => setTimeout(resolve));
  setTimeout(resolve, PAINT_MAX_MS);
});
const modules = /** @type {HTMLTemplateElement} */ (document.getElementById('modules'));
document.head.append(modules.content);
await import('./main.js');
