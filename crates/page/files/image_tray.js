// Images of a message that is being written: opened, drawn, shown, removed.

import { hexadecimal, newId } from './conversation.js';
import { announce, button, el, fill } from './dom.js';
import { FILE_BYTES_MAX, IMAGE_BYTES_MAX, fitted, keptImages, newImagePart, typeOfOriginal } from './images.js';

/** @typedef {import('./images.js').ImagePart} ImagePart */

/** Of drawn images; the second where a browser does not write the first. */
const DRAWN_TYPES = ['image/webp', 'image/jpeg'];
const QUALITY = 0.9;

/** Whether a file may be an image; some systems do not know HEIC. @param {File} file */
export function isImageFile(file) {
  return file.type.startsWith('image/') || /\.hei[cf]$/i.test(file.name);
}

export class ImageTray {
  /** Images that are being opened. */
  opening = 0;

  /** @param {ImagePart[]} [images] */
  constructor(images = []) {
    this.images = images;
    this.root = el('ul', { class: 'images', 'aria-label': 'Images of the message', tabindex: '-1' });
    this.#show();
  }

  /** Empties the tray. */
  take() {
    const { images } = this;
    this.images = [];
    this.#show();
    return images;
  }

  /** Opens a file. Throws an error with its name. @param {File} file */
  async add(file) {
    this.opening += 1;
    try {
      const image = await readImage(file);
      this.images = [...this.images.filter((other) => other.id !== image.id), image];
      announce(`${image.name} was added`);
    } finally {
      this.opening -= 1;
      this.#show();
    }
  }

  /** @param {ImagePart} image */
  #remove(image) {
    const at = this.images.indexOf(image);
    this.images = this.images.filter((other) => other !== image);
    this.#show();
    announce(`${image.name} was removed`);
    const buttons = this.root.querySelectorAll('button');
    (buttons[Math.min(at, buttons.length - 1)] ?? this.root.parentElement?.querySelector('textarea'))?.focus();
  }

  #show() {
    this.root.hidden = this.images.length === 0;
    fill(this.root, ...this.images.map((image) => el('li', {}, thumbnail(image),
      button('×', () => this.#remove(image), { 'aria-label': `Remove ${image.name}` }))));
  }
}

/** The picture, or in its place that it is gone. @param {ImagePart} image @returns {HTMLElement} */
export function thumbnail({ id, name, width, height }) {
  const kept = keptImages.get(id);
  return kept ? el('img', { src: kept.url, alt: name, title: name, width, height })
    : el('span', { class: 'chip' }, `${name}: images are not kept; this one is not sent again`);
}

/** Opens a file, chooses the bytes to send and keeps them. @param {File} file @returns {Promise<ImagePart>} */
async function readImage(file) {
  if (file.size > FILE_BYTES_MAX) throw new Error(`${file.name} has ${file.size} bytes; images of at most ${FILE_BYTES_MAX} are opened`);
  const url = URL.createObjectURL(file);
  const picture = el('img', { src: url });
  await picture.decode().catch(() => { throw new Error(`${file.name}: this browser cannot open it as an image`); })
    .finally(() => URL.revokeObjectURL(url));
  const [width, height] = fitted(picture.naturalWidth, picture.naturalHeight);
  const drawn = await draw(picture, width, height);
  const original = new Uint8Array(await file.arrayBuffer());
  const type = typeOfOriginal(original, picture.naturalWidth * picture.naturalHeight, drawn.size);
  const sent = type ? new Blob([original], { type }) : drawn;
  if (sent.size > IMAGE_BYTES_MAX) throw new Error(`${file.name} has ${sent.size} bytes; an image has at most ${IMAGE_BYTES_MAX}`);
  const id = await digest(sent);
  keptImages.keep(id, await dataUrl(sent), sent);
  return newImagePart(id, file.name, sent.size, width, height);
}

/** A picture as it is seen, upright and on white. @param {HTMLImageElement} picture @param {number} width @param {number} height @returns {Promise<Blob>} */
async function draw(picture, width, height) {
  const canvas = el('canvas', { width, height });
  const context = canvas.getContext('2d');
  context.fillStyle = '#fff';
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = 'high';
  context.drawImage(picture, 0, 0, width, height);
  for (const type of DRAWN_TYPES) {
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, type, QUALITY));
    if (blob?.type === type) return blob;
  }
  throw new Error('this browser cannot write images');
}

/** @param {Blob} blob */
async function digest(blob) {
  if (!crypto.subtle) return newId();
  return hexadecimal(new Uint8Array(await crypto.subtle.digest('SHA-256', await blob.arrayBuffer())));
}

/** @param {Blob} blob @returns {Promise<string>} */
function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}
