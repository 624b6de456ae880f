// The law of the markdown renderer: however the text is cut, the result is that of the whole text.
//
// Promise (The web page): the nodes of a markdown text, and the events of a stream, do not depend on how the text was
// cut; blocks that are called final never change.
// Also held by `page/tests/node/streams.test.mjs`.
//
// Promise (The web page): text of a model is never markup: no script, no image, no request to another host.
// Also held by `page/src/tests.rs`, `tools/page/chat_checks.py :: hostile_text`.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { outline } from './fake_document.mjs';
import { MarkdownView, patchChildren } from '../../files/markdown_view.js';
import { Markdown, parseMarkdown } from '../../files/markdown.js';
import { isSafe, parseInline } from '../../files/markdown_inline.js';

const TEXTS = [
  '# A *title*\n\nSome **bold and *both*** text, `code` and ~~gone~~.\nA second line\\*.\n\n## Next ##\n',
  '- one\n- two\n  - inner\n    more\n\n  a paragraph\n- [x] done\n- [ ] open\n\nafter\n* other\n1) x\n2) y\n',
  '3. three\n4. four\n\n   text\n\n5. five\nlazy\n> quote\n> - in it\n>\n> end\n\nlast',
  '```js\nlet a = 1;\n\n# no heading\n```\n\ntext\n~~~\nopen fence\n``` \n  still',
  '| a | b |\n|---|:-:|\n| 1 | `x|y` |\n| 2 |\n\n|no|table\ntext | more\n---\nend',
  'a [link](https://example.org/a_(b) "t"), <https://example.org>, https://example.org/x). [bad](javascript:alert(1)) ![image](https://x.y/z.png)\n\n***\n\n_in_word_ and snake_case_name **open',
  '<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\r\n\r\nWindows\r\nlines\r\n',
  '\u202eright to left\u202c שלום *עולם* 👩‍👩‍👧 e\u0301 \u200d\u{1F1E9}\u{1F1EA} **👍**\n\n- 你好 **世界**。\n',
  '    indented\n\n\n\n\ttab\n---\n- a\n\n\n- b\n-\n+ c\n```\n```\n',
  '* a\n  * b\n    * c\n      * d\n> > > > deep\n>>x\n1. a\n   ```py\n   x = 1\n   ```\n   after\n',
  'para\n| h | i |\n|---|---|\n| 1 | 2 |\n# heading\n> q\ntext after quote\n',
];

/** Deterministic random numbers. */
function random(seed) {
  return (below) => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return Math.floor((seed / 2 ** 32) * below);
  };
}

function randomText(seed) {
  const next = random(seed);
  const words = ['# ', '- ', '1. ', '> ', '```', '\n', '\n', '\n\n', '  ', '    ', '*', '**', '_', '`', '|', '---', '[a](https://b)', '[', ']', '(', 'word', ' ', '~~', '\\', '<b>', '🙂', '\t', '\r\n'];
  return Array.from({ length: 40 }, () => words[next(words.length)]).join('');
}

test('nodes of a text in two pieces are those of the whole text, for every cut', () => {
  const texts = [...TEXTS, ...Array.from({ length: 300 }, (_, seed) => randomText(seed))];
  for (const text of texts) {
    const whole = parseMarkdown(text);
    for (let cut = 0; cut <= text.length; cut += 1) {
      const markdown = new Markdown();
      markdown.push(text.slice(0, cut));
      markdown.nodes();
      markdown.push(text.slice(cut));
      assert.deepEqual(markdown.nodes().nodes, whole, JSON.stringify([text, cut]));
    }
  }
});

test('blocks that are called final never change', () => {
  for (const text of [...TEXTS, ...Array.from({ length: 100 }, (_, seed) => randomText(seed + 1000))]) {
    const markdown = new Markdown();
    let before = [];
    for (const char of text) {
      markdown.push(char);
      const { nodes, finalCount } = markdown.nodes();
      assert.ok(finalCount >= before.length);
      assert.deepEqual(nodes.slice(0, before.length), before, JSON.stringify(text));
      before = nodes.slice(0, finalCount);
    }
    assert.deepEqual(markdown.nodes().nodes, parseMarkdown(text));
  }
});

test('elements of a text that grew are those of a text that came at once', () => {
  for (const text of TEXTS) {
    const whole = document.createElement('div');
    patchChildren(whole, parseMarkdown(text));
    for (const step of [1, 3, 7, 1000]) {
      const root = document.createElement('div');
      const view = new MarkdownView(root);
      for (let end = step; end < text.length + step; end += step) {
        view.show(text.slice(0, end));
        view.render();
      }
      assert.deepEqual(outline(root), outline(whole), JSON.stringify([text, step]));
    }
  }
});

test('markup in a text is text', () => {
  const root = document.createElement('div');
  patchChildren(root, parseMarkdown(TEXTS[6]));
  const tags = new Set(JSON.stringify(outline(root)).match(/"(script|img|iframe|style|svg)"/g) ?? []);
  assert.equal(tags.size, 0);
  assert.ok(root.textContent.includes('<script>alert(1)</script>'));
});

test('links lead to the web only', () => {
  for (const url of ['javascript:alert(1)', 'JaVaScRiPt:x', 'data:text/html,x', 'vbscript:x', '//evil', '/api/delete', 'file:///etc']) {
    assert.equal(isSafe(url), false, url);
    const nodes = JSON.stringify(parseInline(`[x](${url})`));
    assert.ok(!nodes.includes('"href"'), nodes);
  }
  assert.ok(isSafe('https://example.org'));
});

test('hostile texts cost no more than a moment', () => {
  const long = 200_000;
  const texts = ['a'.repeat(1 << 20), '['.repeat(long), '*'.repeat(long), '> '.repeat(long), '`a'.repeat(60_000), '- '.repeat(20_000), '<'.repeat(long), '# ' + ' '.repeat(long) + 'x',
    '|'.repeat(long) + '\n' + '|-'.repeat(long), '*a '.repeat(20_000), '[a]('.repeat(15_000), '\\'.repeat(60_000), '***a '.repeat(10_000)];
  for (const text of texts) {
    const nodes = parseMarkdown(text);
    assert.ok(nodes.length > 0);
  }
});

test('emphasis, lists and tables become what they mean', () => {
  const rows = [
    ['**a** *b* ~~c~~', [{ tag: 'strong', children: ['a'] }, ' ', { tag: 'em', children: ['b'] }, ' ', { tag: 'del', children: ['c'] }]],
    ['snake_case_name', ['snake_case_name']],
    ['a * b * c', ['a * b * c']],
    ['**open', ['**open']],
    ['***x***', [{ tag: 'em', children: [{ tag: 'strong', children: ['x'] }] }]],
    ['`` a`b ``', [{ tag: 'code', children: ['a`b'] }]],
  ];
  for (const [text, nodes] of rows) assert.deepEqual(parseInline(text), nodes, text);
  assert.deepEqual(parseMarkdown('- a\n  - b\n'), [{ tag: 'ul', children: [{ tag: 'li', children: ['a', { tag: 'ul', children: [{ tag: 'li', children: ['b'] }] }] }] }]);
});
