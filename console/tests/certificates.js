// Makes authorities and certificates for members and clients, and calls members with them.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { Readable } from 'node:stream';

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

function openssl(...words) {
  execFileSync('openssl', words, { stdio: 'pipe' });
}

/** An authority whose files are in a directory. */
export class Authority {
  constructor(dir, name) {
    Object.assign(this, { dir, name, cert: join(dir, `${name}.pem`), key: join(dir, `${name}.key`) });
    openssl('req', '-x509', ...KEY, '-days', '30', '-subj', `/CN=${name}`, '-keyout', this.key, '-out', this.cert);
  }

  /** Signs a certificate with these names, as `DNS:a`. Returns its files. */
  sign(name, names, days = 30) {
    const [cert, key, csr, ext] = ['pem', 'key', 'csr', 'ext'].map((end) => join(this.dir, `${this.name}-${name}.${end}`));
    writeFileSync(ext, `subjectAltName=${names.join(',')}\nextendedKeyUsage=serverAuth,clientAuth\n`);
    openssl('req', '-new', ...KEY, '-subj', `/CN=${name}`, '-keyout', key, '-out', csr);
    openssl('x509', '-req', '-in', csr, '-CA', this.cert, '-CAkey', this.key, '-CAcreateserial', '-days', String(days), '-extfile', ext, '-out', cert);
    return { cert, key };
  }
}

/** Requests as `fetch` makes them, by a client with a certificate to servers of an authority. */
export function fetchWith({ cert, key }, authority) {
  const files = { cert: readFileSync(cert), key: readFileSync(key), ca: readFileSync(authority.cert) };
  return (url, { method = 'GET', headers = {}, body } = {}) =>
    new Promise((resolve, reject) => {
      const sent = request(url, { method, headers, ...files, agent: false }, (answer) => {
        resolve(new Response([204, 304].includes(answer.statusCode) ? null : Readable.toWeb(answer), { status: answer.statusCode }));
      });
      sent.on('error', reject);
      sent.end(body);
    });
}
