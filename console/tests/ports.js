// Gives a run of the tests ports that no other run uses, and that stay free while a member is down.
//
// A port that the system chose could be given to an outgoing connection as soon as its member is killed, so these lie
// below the ports that the system assigns. A run reserves a block of them with a file that names its process.

import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Above the ports of the tests in Rust, below those that the system assigns to connections. */
const FIRST = 30_500;
const BLOCK = 64;
const BLOCKS = 35;
const DIR = join(tmpdir(), 'tenure-console-ports');

const taken = [];
let next = 0;

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function reserve(block) {
  const path = join(DIR, String(block));
  try {
    writeFileSync(path, String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code !== 'EEXIST') throw error;
  }
  let owner;
  try {
    owner = Number(readFileSync(path, 'utf8'));
  } catch {
    // Its run ended just now.
    return false;
  }
  // A run that was killed left its file.
  if (owner && !isAlive(owner)) rmSync(path, { force: true });
  return false;
}

function newBlock() {
  mkdirSync(DIR, { recursive: true, mode: 0o1777 });
  // The second round finds what the first one cleared.
  for (let at = 0; at < 2 * BLOCKS; at += 1) {
    const block = (process.pid + at) % BLOCKS;
    if (reserve(block)) return block;
  }
  throw new Error(`every block of ports in ${DIR} is taken`);
}

function isUsed(port) {
  return new Promise((resolve) => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

/** A port that no other run of the tests uses while this process lives. */
export async function freePort() {
  for (;;) {
    if (next % BLOCK === 0) taken.push(newBlock());
    const port = FIRST + taken[taken.length - 1] * BLOCK + (next % BLOCK);
    next += 1;
    // A program that knows nothing of the files may use it.
    if (!(await isUsed(port))) return port;
  }
}

process.on('exit', () => {
  for (const block of taken) rmSync(join(DIR, String(block)), { force: true });
});
