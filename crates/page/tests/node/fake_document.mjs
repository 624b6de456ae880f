// As much of a document as the views of the page use: elements, texts, attributes.

class FakeNode {
  childNodes = [];
  parentNode = null;

  get firstChild() {
    return this.childNodes[0] ?? null;
  }

  get lastChild() {
    return this.childNodes.at(-1) ?? null;
  }

  appendChild(child) {
    child.parentNode?.removeChild(child);
    child.parentNode = this;
    this.childNodes.push(child);
    return child;
  }

  append(...children) {
    for (const child of children) this.appendChild(typeof child === 'string' ? document.createTextNode(child) : child);
  }

  removeChild(child) {
    this.childNodes.splice(this.childNodes.indexOf(child), 1);
    child.parentNode = null;
    return child;
  }

  replaceChild(made, there) {
    this.childNodes[this.childNodes.indexOf(there)] = made;
    [made.parentNode, there.parentNode] = [this, null];
    return there;
  }

  replaceChildren(...children) {
    this.childNodes = [];
    this.append(...children);
  }
}

class FakeText extends FakeNode {
  nodeType = 3;

  constructor(data) {
    super();
    this.data = data;
  }

  appendData(data) {
    this.data += data;
  }

  get textContent() {
    return this.data;
  }
}

class FakeElement extends FakeNode {
  nodeType = 1;
  attributes = {};
  dataset = {};
  listeners = {};

  constructor(tag) {
    super();
    this.tag = tag;
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }

  /** The first descendant with this tag. */
  querySelector(tag) {
    for (const child of this.childNodes) {
      if (child.tag === tag) return child;
      const found = child.querySelector?.(tag);
      if (found) return found;
    }
    return null;
  }

  get textContent() {
    return this.childNodes.map((child) => child.textContent).join('');
  }

  set textContent(text) {
    this.replaceChildren(text);
  }
}

globalThis.document = {
  createElement: (tag) => new FakeElement(tag),
  createTextNode: (data) => new FakeText(data),
  hidden: false,
};
globalThis.requestAnimationFrame = (act) => setImmediate(act);

/** What a reader sees: tags, attributes and texts. */
export function outline(node) {
  if (node.nodeType === 3) return node.data;
  return [node.tag, node.attributes, ...node.childNodes.map(outline)];
}
