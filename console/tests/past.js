// Tests how the events of the past become holds, without a browser.

import assert from 'node:assert/strict';
import { heldAt, holds } from '../holds.js';

export async function stage() {
  return {};
}

const change = (revision, ...events) => ({
  revision: String(revision),
  events: events.map((event) => ({ lock: 'a', at: new Date(revision * 1000).toISOString(), clock_ms: revision * 1000, ...event })),
});
const holders = (changes, at) => heldAt(holds(changes), at * 1000).map((hold) => [hold.client, hold.token]);

async function a_hold_that_was_handed_on_ends_then() {
  const changes = [
    change(1, { cause: 'granted', client: 'old', lease: '1', token: '1', mode: 'exclusive' }),
    change(5, { cause: 'handed_on', client: 'old', lease: '1', token: '1' }, { cause: 'granted', client: 'new', lease: '2', token: '2', mode: 'exclusive' }),
  ];
  assert.deepEqual(holders(changes, 4), [['old', '1']]);
  assert.deepEqual(holders(changes, 6), [['new', '2']]);
  assert.deepEqual(holds(changes).map((hold) => hold.end), ['handed_on', undefined]);
}

async function an_upgraded_hold_goes_on_under_its_new_token() {
  const changes = [
    change(1, { cause: 'granted', client: 'ana', lease: '1', token: '1', mode: 'shared' }),
    change(2, { cause: 'granted', client: 'ben', lease: '2', token: '2', mode: 'shared' }),
    change(3, { cause: 'released', client: 'ben', lease: '2', token: '2' }, { cause: 'upgraded', client: 'ana', lease: '1', token: '3', mode: 'exclusive' }),
    change(5, { cause: 'downgraded', client: 'ana', lease: '1', token: '4', mode: 'shared' }),
    change(7, { cause: 'released', client: 'ana', lease: '1', token: '4' }),
  ];
  assert.deepEqual(holders(changes, 2.5), [['ana', '1'], ['ben', '2']]);
  assert.deepEqual(holders(changes, 4), [['ana', '3']]);
  assert.deepEqual(holders(changes.slice(2), 4), [['ana', '3']], 'the grant is older than what was read');
  assert.deepEqual(holders(changes, 8), []);
  assert.equal(holds(changes).length, 2, 'one hold, whatever its tokens');
}

export const tests = [a_hold_that_was_handed_on_ends_then, an_upgraded_hold_goes_on_under_its_new_token];
