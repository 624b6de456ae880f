// JSON that is not complete yet, beside a schema: whether it can still become valid, and if not, where and why.

/** @typedef {{state: 'incomplete' | 'valid' | 'invalid', message: string}} Verdict */

const DEPTH_MAX = 64;

/** @param {any} schema `null`: any JSON. @param {string} text @param {boolean} isWhole Whether nothing follows the text. @returns {Verdict} */
export function checkJson(schema, text, isWhole = false) {
  // After a space, a number at the end is whole.
  const parser = new PrefixParser(isWhole ? `${text} ` : text);
  try {
    const value = parser.value(0);
    if (parser.isCut && isWhole) return { state: 'invalid', message: 'the text ends within the JSON value' };
    if (parser.isCut) {
      const why = schema ? violation(schema, value, '$', schema, 0) : '';
      return why ? { state: 'invalid', message: why } : { state: 'incomplete', message: 'valid so far' };
    }
    parser.space();
    if (!parser.isAtEnd) return { state: 'invalid', message: `text after the JSON value, at character ${parser.at}` };
    const why = schema ? violation(schema, value, '$', schema, 0) : '';
    return why ? { state: 'invalid', message: why } : { state: 'valid', message: 'valid' };
  } catch (error) {
    return { state: 'invalid', message: error instanceof Error ? error.message : String(error) };
  }
}

/** A value that the text's end cut off. */
class Cut {
  /** @param {any} value What is there so far. */
  constructor(value) {
    this.value = value;
  }
}

class PrefixParser {
  at = 0;
  isCut = false;

  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  get isAtEnd() {
    return this.at >= this.text.length;
  }

  space() {
    while (/[ \t\r\n]/.test(this.text[this.at] ?? '')) this.at += 1;
  }

  /** @param {any} value */
  cut(value) {
    this.isCut = true;
    return new Cut(value);
  }

  /** @param {number} depth @returns {any} */
  value(depth) {
    if (depth > DEPTH_MAX) throw new Error(`nested deeper than ${DEPTH_MAX}`);
    this.space();
    const char = this.text[this.at];
    if (char === undefined) return this.cut(undefined);
    if (char === '{') return this.object(depth);
    if (char === '[') return this.array(depth);
    if (char === '"') return this.string();
    return this.scalar();
  }

  string() {
    const begin = this.at;
    for (this.at += 1; this.at < this.text.length; this.at += 1) {
      const char = this.text[this.at];
      if (char === '"') {
        this.at += 1;
        return JSON.parse(this.text.slice(begin, this.at));
      }
      if (char === '\\') this.at += 1;
      else if (char < ' ') throw new Error(`a control character in a string, at character ${this.at}`);
    }
    this.at = this.text.length;
    const inner = this.text.slice(begin).replace(/\\(?:u[0-9a-fA-F]{0,3})?$/, '');
    try {
      return this.cut(JSON.parse(`${inner}"`));
    } catch {
      return this.cut('');
    }
  }

  scalar() {
    const rest = this.text.slice(this.at);
    const word = /^[-+.\w]+/.exec(rest)?.[0] ?? '';
    const isLast = word.length === rest.length;
    for (const [name, value] of /** @type {[string, any][]} */ ([['true', true], ['false', false], ['null', null]])) {
      if (word === name) {
        this.at += word.length;
        return value;
      }
      if (isLast && word !== '' && name.startsWith(word)) return this.cut(undefined);
    }
    if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/.test(word)) {
      this.at += word.length;
      // More digits may follow.
      return isLast ? this.cut(undefined) : Number(word);
    }
    if (isLast && /^-?(0|[1-9]\d*)?\.?\d*([eE][-+]?)?$/.test(word) && word !== '') return this.cut(undefined);
    throw new Error(`unexpected ${JSON.stringify(rest.slice(0, 12))}, at character ${this.at}`);
  }

  /** @param {number} depth */
  array(depth) {
    /** @type {any[]} */
    const items = [];
    this.at += 1;
    this.space();
    if (this.text[this.at] === ']') {
      this.at += 1;
      return items;
    }
    for (;;) {
      this.space();
      if (this.isAtEnd) return this.cut(items);
      items.push(this.value(depth + 1));
      if (this.isCut) return this.cut(items);
      this.space();
      const char = this.text[this.at];
      if (char === undefined) return this.cut(items);
      this.at += 1;
      if (char === ']') return items;
      if (char !== ',') throw new Error(`expected , or ], at character ${this.at - 1}`);
    }
  }

  /** @param {number} depth */
  object(depth) {
    /** @type {Record<string, any>} */
    const members = Object.create(null);
    this.at += 1;
    this.space();
    if (this.text[this.at] === '}') {
      this.at += 1;
      return members;
    }
    for (;;) {
      this.space();
      if (this.isAtEnd) return this.cut(members);
      if (this.text[this.at] !== '"') throw new Error(`expected a name, at character ${this.at}`);
      const name = this.string();
      if (this.isCut) return this.cut(members);
      this.space();
      if (this.isAtEnd) return this.cut(members);
      if (this.text[this.at] !== ':') throw new Error(`expected :, at character ${this.at}`);
      this.at += 1;
      members[name] = this.value(depth + 1);
      if (this.isCut) return this.cut(members);
      this.space();
      const char = this.text[this.at];
      if (char === undefined) return this.cut(members);
      this.at += 1;
      if (char === '}') return members;
      if (char !== ',') throw new Error(`expected , or }, at character ${this.at - 1}`);
    }
  }
}

/** @param {any} value */
function typeOf(value) {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number') return Number.isInteger(value) ? 'integer' : 'number';
  return typeof value;
}

/** Why a value cannot be valid; empty if it is, or may become so. @param {any} schema @param {any} value @param {string} path @param {any} root @param {number} depth @returns {string} */
function violation(schema, value, path, root, depth) {
  if (schema === false) return `${path}: nothing is allowed here`;
  if (schema === true || typeof schema !== 'object' || !schema || depth > DEPTH_MAX) return '';
  const isCut = value instanceof Cut;
  const now = isCut ? value.value : value;
  if (now === undefined) return '';
  if (typeof schema.$ref === 'string') return violation(referenced(schema.$ref, root), value, path, root, depth + 1);
  for (const part of schema.allOf ?? []) {
    const why = violation(part, value, path, root, depth + 1);
    if (why) return why;
  }
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(alternatives) && alternatives.every((part) => violation(part, value, path, root, depth + 1))) {
    return `${path}: none of the ${alternatives.length} alternatives`;
  }
  const type = typeOf(now);
  const types = schema.type === undefined ? [] : [schema.type].flat();
  if (types.length > 0 && !types.includes(type) && !(type === 'integer' && types.includes('number'))) {
    return `${path}: ${type}, not ${types.join(' or ')}`;
  }
  const allowed = schema.enum ?? (schema.const === undefined ? null : [schema.const]);
  if (allowed && !allowed.some((/** @type {any} */ one) => isEqual(one, now) || (isCut && mayBecome(one, now)))) {
    return `${path}: not one of ${JSON.stringify(allowed).slice(0, 80)}`;
  }
  if (type === 'object') return objectViolation(schema, now, isCut, path, root, depth);
  if (type === 'array') return arrayViolation(schema, now, isCut, path, root, depth);
  if (type === 'string') return stringViolation(schema, now, isCut, path);
  return typeof now === 'number' ? numberViolation(schema, now, path) : '';
}

/** @param {any} schema @param {any} value @param {boolean} isCut @param {string} path @param {any} root @param {number} depth */
function objectViolation(schema, value, isCut, path, root, depth) {
  const properties = schema.properties ?? {};
  for (const [name, member] of Object.entries(value)) {
    const inner = Object.hasOwn(properties, name) ? properties[name] : schema.additionalProperties;
    const isClosed = schema.properties && schema.additionalProperties === undefined && !schema.patternProperties;
    if (inner === false || (inner === undefined && isClosed)) return `${path}.${name}: not a property of the schema`;
    const why = violation(inner ?? true, member, `${path}.${name}`, root, depth + 1);
    if (why) return why;
  }
  const missing = isCut ? undefined : (schema.required ?? []).find((/** @type {string} */ name) => !(name in value));
  return missing === undefined ? '' : `${path}: ${missing} is missing`;
}

/** @param {any} schema @param {any[]} value @param {boolean} isCut @param {string} path @param {any} root @param {number} depth */
function arrayViolation(schema, value, isCut, path, root, depth) {
  for (const [index, item] of value.entries()) {
    const inner = schema.prefixItems?.[index] ?? schema.items ?? true;
    const why = violation(inner, item, `${path}[${index}]`, root, depth + 1);
    if (why) return why;
  }
  if (value.length > (schema.maxItems ?? Infinity)) return `${path}: more than ${schema.maxItems} items`;
  return !isCut && value.length < (schema.minItems ?? 0) ? `${path}: fewer than ${schema.minItems} items` : '';
}

/** @param {any} schema @param {string} value @param {boolean} isCut @param {string} path */
function stringViolation(schema, value, isCut, path) {
  const length = [...value].length;
  if (length > (schema.maxLength ?? Infinity)) return `${path}: longer than ${schema.maxLength} characters`;
  if (isCut) return '';
  if (length < (schema.minLength ?? 0)) return `${path}: shorter than ${schema.minLength} characters`;
  return '';
}

/** @param {any} schema @param {number} value @param {string} path */
function numberViolation(schema, value, path) {
  if (value > (schema.maximum ?? Infinity)) return `${path}: more than ${schema.maximum}`;
  if (value < (schema.minimum ?? -Infinity)) return `${path}: less than ${schema.minimum}`;
  if (value >= (schema.exclusiveMaximum ?? Infinity)) return `${path}: not less than ${schema.exclusiveMaximum}`;
  if (value <= (schema.exclusiveMinimum ?? -Infinity)) return `${path}: not more than ${schema.exclusiveMinimum}`;
  return '';
}

/** @param {string} reference @param {any} root */
function referenced(reference, root) {
  if (!reference.startsWith('#')) return true;
  const names = reference.slice(1).split('/').filter(Boolean).map((name) => name.replace(/~1/g, '/').replace(/~0/g, '~'));
  return names.reduce((at, name) => at?.[name], root) ?? true;
}

/** @param {any} one @param {any} cut */
function mayBecome(one, cut) {
  if (typeof cut === 'string') return typeof one === 'string' && one.startsWith(cut);
  return typeof cut === 'object' && typeof one === 'object';
}

/** @param {any} a @param {any} b @returns {boolean} */
function isEqual(a, b) {
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b) return a === b;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && Array.isArray(a) === Array.isArray(b) && names.every((name) => isEqual(a[name], b[name]));
}
