// The colors of the page: the system's, or the ones that were chosen in this browser. The first script shows them.

const KEY = 'millrace-theme';
export const THEMES = ['system', 'light', 'dark'];

export function storedTheme() {
  const theme = localStorage.getItem(KEY) ?? '';
  return THEMES.includes(theme) ? theme : 'system';
}

/** @param {string} theme */
export function setTheme(theme) {
  localStorage.setItem(KEY, theme);
  if (theme === 'system') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.dataset.theme = theme;
}
