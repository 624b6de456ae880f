// Images of messages: which bytes are sent, how they stand in requests, and what is kept. A conversation has their names, sizes
// and digests; the bytes are in this tab's memory only.

/**
 * @typedef {object} ImagePart
 * @property {'image'} kind
 * @property {string} id Digest of the bytes (SHA-256, hexadecimal); random in a page without TLS.
 * @property {string} name
 * @property {number} bytes
 * @property {number} width Pixels, as drawn.
 * @property {number} height
 * @property {number} from
 * @property {number} to
 */

/** Images of a request, those of earlier messages included. */
export const IMAGES_MAX = 16;
/** Bytes of an image that is sent. */
export const IMAGE_BYTES_MAX = 20 << 20;
/** Bytes of a file that is opened to be drawn smaller. */
export const FILE_BYTES_MAX = 100 << 20;
/** Pixels of a file that is sent as it is. */
export const PIXELS_MAX = 50_000_000;
/** Pixels of the longest edge of an image that is drawn. */
export const EDGE_MAX = 2048;
/** Characters of the data URLs in this tab's memory; the oldest go first. */
export const KEPT_CHARS_MAX = 256 << 20;
const NAME_CHARS_MAX = 120;

/** Types that a server reads: how the bytes begin, what begins a frame of an animation, and how often that may stand there. */
const TYPES = /** @type {[string, RegExp, string, number][]} */ ([
  ['image/jpeg', /^\xff\xd8\xff/, '', 0],
  ['image/png', /^.PNG\r\n/, 'acTL', 0],
  ['image/webp', /^RIFF[^]{4}WEBP/, 'ANMF', 0],
  ['image/gif', /^GIF8[79]a/, '!\xf9\x04', 1],
  ['image/bmp', /^BM/, '', 0],
]);
/** What stands in a request for an image whose bytes are gone. */
const GONE = '[an image that is no longer available]\n';

/**
 * The type under which a file is sent as it is. Empty: what was drawn is smaller, or the only one that a server reads.
 * @param {Uint8Array} file @param {number} pixels @param {number} drawnBytes
 */
export function typeOfOriginal(file, pixels, drawnBytes) {
  if (file.length > drawnBytes || pixels > PIXELS_MAX) return '';
  const text = new TextDecoder('latin1').decode(file);
  const known = TYPES.find(([, begin]) => begin.test(text));
  if (!known) return '';
  const [type, , frame, frames] = known;
  return frame && text.split(frame).length - 1 > frames ? '' : type;
}

/** Width and height within the longest edge. @param {number} width @param {number} height */
export function fitted(width, height) {
  const scale = Math.min(1, EDGE_MAX / Math.max(width, height));
  return [width, height].map((edge) => Math.max(1, Math.round(edge * scale)));
}

/** @param {string} id @param {string} name @param {number} bytes @param {number} width @param {number} height @returns {ImagePart} */
export function newImagePart(id, name, bytes, width, height) {
  return { kind: 'image', id, name: name.slice(0, NAME_CHARS_MAX) || 'image', bytes, width, height, from: 0, to: 0 };
}

/** Whether a part of a file is an image without its bytes. @param {any} part */
export function isImagePart(part) {
  return part.kind === 'image' && ['id', 'name'].every((key) => typeof part[key] === 'string' && part[key].length <= NAME_CHARS_MAX)
    && ['bytes', 'width', 'height'].every((key) => Number.isFinite(part[key]));
}

/** The bytes of images, as long as the tab is open. */
export class KeptImages {
  /** @type {Map<string, {data: string, url: string}>} */
  #all = new Map();
  #chars = 0;

  /** @param {number} [charsMax] */
  constructor(charsMax = KEPT_CHARS_MAX) {
    this.charsMax = charsMax;
  }

  /** @param {string} id @returns {{data: string, url: string} | undefined} The data URL, and an address for this page. */
  get(id) {
    return this.#all.get(id);
  }

  /** @param {string} id @param {string} data @param {Blob} blob */
  keep(id, data, blob) {
    if (this.#all.has(id)) return;
    this.#all.set(id, { data, url: URL.createObjectURL(blob) });
    this.#chars += data.length;
    for (const [oldest, image] of this.#all) {
      if (this.#chars <= this.charsMax || oldest === id) return;
      this.#all.delete(oldest);
      this.#chars -= image.data.length;
      URL.revokeObjectURL(image.url);
    }
  }
}

export const keptImages = new KeptImages();

/** The images of a message. @param {{parts: any[]}} message @returns {ImagePart[]} */
export function imagesOf(message) {
  return message.parts.filter((part) => part.kind === 'image');
}

/** How OpenAI's API writes an image. @param {string} data A data URL. */
function asImageUrl(data) {
  return { type: 'image_url', image_url: { url: data } };
}

/** How Anthropic's API writes an image. @param {string} data A data URL. */
export function asImageSource(data) {
  const [, type, base64] = /** @type {RegExpMatchArray} */ (data.match(/^data:([^;]*);base64,([^]*)$/));
  return { type: 'image', source: { type: 'base64', media_type: type, data: base64 } };
}

/**
 * The content of a message in a request: its text, or a list where it has images, which stand before the text.
 * @param {ImagePart[]} images @param {string} text @param {(data: string) => any} [write]
 */
export function contentOf(images, text, write = asImageUrl) {
  if (images.length === 0) return text;
  const parts = images.map(({ id }) => {
    const kept = keptImages.get(id);
    return kept ? write(kept.data) : { type: 'text', text: GONE };
  });
  return text ? [...parts, { type: 'text', text }] : parts;
}
