// What an attacker, another site or a stored text could try.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { Client, Cluster, PATIENCE_MS } from './cluster.js';
import { Page } from './browser.js';

const SCRIPT = '<img src=x onerror="window.stored=1"><script>window.stored=1</script>';

export async function stage(binary, opens) {
  const cluster = opens(await Cluster.start(binary, 1));
  const open = cluster.administrator();
  // Identity is enabled: an administrator, and one that may only read below team/.
  const all = ['read', 'observe', 'acquire', 'elect', 'keys', 'force', 'operate', 'administer', 'sign'];
  const admin = await open.principal('admin', [{ verbs: all, prefix: '' }]);
  const reader = await open.principal('reader', [{ verbs: ['read', 'observe'], prefix: 'team/' }]);
  await open.ask('PUT', '/v1/access/identity', { enabled: true });
  const readOnly = opens(await Cluster.start(binary, 1, ['--console', 'read-only']));
  const off = opens(await Cluster.start(binary, 1, ['--console', 'off']));
  return { cluster, readOnly, off, admin, reader, client: new Client(cluster.url(), admin.text) };
}

async function signIn(page, key) {
  await page.page.goto(`${page.base}/`);
  await page.page.waitForSelector('input[name=key]');
  await page.page.fill('input[name=key]', key);
  await page.page.getByRole('button', { name: 'Sign in' }).click();
}

export const tests = [
  async function a_wrong_key_is_refused_and_a_right_one_becomes_a_session({ browser, cluster, admin, shots }) {
    const page = await Page.open(browser, cluster.url());
    page.expected.push(/401/);
    const addresses = [];
    page.page.on('request', (request) => addresses.push(request.url()));
    await signIn(page, `tenure_${'0'.repeat(16)}_${'0'.repeat(64)}`);
    await page.sees('unknown or was revoked');
    if (shots) await page.page.screenshot({ path: `${shots}/signin-light.png` });
    assert.deepEqual(await page.violations(), []);
    await page.page.fill('input[name=key]', admin.text);
    await page.page.getByRole('button', { name: 'Sign in' }).click();
    await page.sees('Sign out');
    await page.sees('admin');
    const [cookie] = await page.context.cookies();
    assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict' && !cookie.secure, JSON.stringify(cookie));
    assert.ok(cookie.expires - Date.now() / 1000 <= 8 * 3600 + 5);
    assert.ok(!cookie.value.includes(admin.text.slice(-64)), 'the cookie is not the key');
    assert.equal(await page.page.evaluate(() => document.cookie), '');
    assert.ok(addresses.every((address) => !address.includes('tenure_')), 'no key in an address');
    const kept = await page.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
    assert.ok(!kept.includes('tenure_'), kept);
    await page.page.goto(`${page.base}/#/access`);
    await page.sees('you are admin');
    await page.sees('reader');
    await page.page.getByRole('button', { name: 'Sign out' }).click();
    await page.page.waitForSelector('input[name=key]');
    const again = await fetch(`${cluster.url()}/v1/console`, { headers: { Cookie: `${cookie.name}=${cookie.value}`, 'Tenure-Console': '1' } });
    assert.equal(again.status, 401, 'the session has ended at the member too');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_caller_sees_and_may_do_what_its_principal_may({ browser, cluster, reader, client }) {
    const lease = await client.lease('team-worker');
    await client.acquire('team/one', lease);
    await client.acquire('secret/one', lease);
    const { token } = await client.acquire('team/lost', lease);
    await client.ask('POST', '/v1/force', { lock: 'team/lost', token, reason: 'gone', by: 'ops', now: true });
    const page = await Page.open(browser, cluster.url());
    page.expected.push(/401|403/);
    await signIn(page, reader.text);
    await page.sees('team/one');
    assert.ok(!(await page.text()).includes('secret/one'));
    await page.page.goto(`${page.base}/#/lock/team%2Fone`);
    await page.sees('Held by');
    assert.ok(await page.page.getByRole('button', { name: 'Take away now…' }).isDisabled());
    await page.page.goto(`${page.base}/#/lock/secret%2Fone`);
    await page.sees('needs the verb');
    await page.page.goto(`${page.base}/#/client/team-worker`);
    await page.sees('It has no lease that you may see');
    await page.sees('team/one held for');
    assert.ok(!(await page.text()).includes('secret/one'));
    await page.page.goto(`${page.base}/#/stuck`);
    await page.sees('You see only what your roles let you read');
    await page.sees('for a lock that you may see');
    await page.sees('Choose a prefix or a lock that you may read.');
    await page.page.fill('input[name=below]', 'team/');
    await page.page.keyboard.press('Tab');
    await page.sees('ops: “gone”');
    await page.page.goto(`${page.base}/#/audit`);
    await page.sees('needs the verb');
    await page.page.goto(`${page.base}/#/access`);
    await page.sees('shown to administrators');
    await page.close();
    const blind = await client.principal('blind', [{ verbs: ['acquire'], prefix: 'team/' }]);
    const other = await Page.open(browser, cluster.url());
    other.expected.push(/403/);
    const asks = () => other.page.waitForRequest((request) => request.url().includes('/v1/overview'));
    await signIn(other, blind.text);
    await other.sees('The summary cannot be read: not allowed: this needs the verb `read`');
    // The page asks again some seconds after a refusal. Long before that a stream that broke would count as stale.
    await asks();
    assert.ok(!(await other.text()).includes('Stale'), 'what may not be seen is not stale');
    await other.close();
  },

  async function who_is_near_a_quota_is_said_and_no_secret_is_shown({ browser, cluster, admin, client }) {
    const key = await client.principal('busy', [{ verbs: ['acquire'], prefix: 'busy/' }]);
    await client.ask('PUT', '/v1/access/principals/busy', { roles: ['busy'], quotas: { leases: 2, locks: 100 } });
    const busy = new Client(cluster.url(), key.text);
    await busy.acquire('busy/one', await busy.lease('busy-1'));
    await busy.lease('busy-2');
    const page = await Page.open(browser, cluster.url());
    page.expected.push(/401/);
    await signIn(page, admin.text);
    await page.sees('Sign out');
    await page.page.goto(`${page.base}/#/access`);
    await page.sees('1 principal is near a quota');
    const row = page.page.locator('section:has(#principals) tr:has(strong:text-is("busy"))');
    assert.match(await row.innerText(), /leases 2 of 2\s.*locks 1 of 100/s);
    assert.equal(await row.locator('.near').innerText(), 'leases 2 of 2');
    const secret = key.text.split('_').pop();
    assert.ok(!(await page.page.content()).includes(secret), 'a key');
    assert.deepEqual(await page.violations(), []);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_revoked_key_ends_the_session_at_once({ browser, cluster, client }) {
    const key = await client.principal('passing', [{ verbs: ['read', 'observe'], prefix: '' }]);
    const page = await Page.open(browser, cluster.url());
    page.expected.push(/401/);
    await signIn(page, key.text);
    await page.sees('Sign out');
    await client.ask('DELETE', `/v1/access/keys/${key.id}`);
    await page.page.waitForSelector('input[name=key]');
    await page.close();
  },

  async function a_session_that_signs_out_ends_its_streams_and_other_pages({ browser, cluster, admin }) {
    const page = await Page.open(browser, cluster.url());
    page.expected.push(/401/);
    await signIn(page, admin.text);
    await page.sees('Longest waits');
    const [cookie] = await page.context.cookies();
    const headers = { Cookie: `${cookie.name}=${cookie.value}`, 'Tenure-Console': '1' };
    const stream = await fetch(`${cluster.url()}/v1/watch?prefix=`, { headers });
    const other = await page.context.newPage();
    await other.goto(`${page.base}/#/keys`);
    await other.getByRole('button', { name: 'Sign out' }).click();
    await other.waitForSelector('input[name=key]');
    const late = new Promise((_, reject) => setTimeout(() => reject(new Error('the stream goes on')), PATIENCE_MS).unref());
    assert.match(await Promise.race([stream.text(), late]), /event: closing\ndata: .*the session of the console has ended/);
    await page.page.waitForSelector('input[name=key]');
    await page.close();
  },

  async function another_site_cannot_use_the_session_or_frame_the_page({ browser, cluster, admin, client }) {
    const lease = await client.lease('victim');
    const { token } = await client.acquire('csrf', lease);
    const page = await Page.open(browser, cluster.url());
    page.expected.push(/.*/);
    await signIn(page, admin.text);
    await page.sees('Sign out');
    const [cookie] = await page.context.cookies();
    // The same host with another port is the same site: the cookie is sent, and must not count.
    const evil = createServer((_, response) => {
      response.setHeader('Content-Type', 'text/html');
      response.end(`<iframe src="${cluster.url()}/"></iframe>`);
    });
    await new Promise((resolve) => evil.listen(0, '127.0.0.1', resolve));
    const other = await page.context.newPage();
    await other.goto(`http://127.0.0.1:${evil.address().port}/`);
    const tried = await other.evaluate(
      async ([base, body]) => {
        const send = async (headers, mode) => {
          try {
            const response = await fetch(`${base}/v1/force`, { method: 'POST', credentials: 'include', mode, headers, body });
            return response.status;
          } catch {
            return 'refused';
          }
        };
        return [await send({ 'Content-Type': 'text/plain' }, 'no-cors'), await send({ 'Content-Type': 'application/json', 'Tenure-Console': '1' }, 'cors')];
      },
      [cluster.url(), JSON.stringify({ lock: 'csrf', token, reason: 'evil', now: true })],
    );
    assert.deepEqual(tried, [0, 'refused']);
    assert.equal((await client.ask('GET', '/v1/locks/csrf')).lock.holders[0].client, 'victim');
    const framed = other.frames().find((frame) => frame !== other.mainFrame());
    const inside = framed ? await framed.evaluate(() => document.body.innerText).catch(() => '') : '';
    assert.ok(!inside.includes('Tenure') || inside.includes('refused'), inside);
    evil.close();
    const raw = (headers, method = 'GET') => fetch(`${cluster.url()}/v1/locks`, { method, headers: { Cookie: `${cookie.name}=${cookie.value}`, ...headers } });
    assert.equal((await raw({})).status, 401, 'the cookie alone does not count');
    assert.equal((await raw({ 'Tenure-Console': '1' })).status, 200);
    assert.equal((await raw({ 'Tenure-Console': '1', 'Sec-Fetch-Site': 'same-site' })).status, 401);
    assert.equal((await raw({ 'Tenure-Console': '1', Origin: 'http://127.0.0.1:1' })).status, 403);
    await page.close();
  },

  async function text_that_clients_wrote_never_runs({ browser, cluster, admin, client }) {
    const lease = await client.lease(SCRIPT, 3_600_000, SCRIPT);
    await client.acquire(`xss/${SCRIPT}`, lease, { metadata: SCRIPT });
    await client.queue(`xss/${SCRIPT}`, await client.lease(`2${SCRIPT}`));
    const lost = await client.lease(`3${SCRIPT}`);
    const { token } = await client.acquire(`xss/lost${SCRIPT}`, lost);
    await client.ask('POST', '/v1/force', { lock: `xss/lost${SCRIPT}`, token, reason: SCRIPT, by: SCRIPT, now: true });
    await client.ask('POST', `/v1/elections/${encodeURIComponent(`xss/e${SCRIPT}`)}`, { lease, value: SCRIPT });
    await client.ask('PUT', `/v1/keys/${encodeURIComponent(`xss/${SCRIPT}`)}`, SCRIPT);
    const page = await Page.open(browser, cluster.url());
    page.expected.push(/401|404/);
    await signIn(page, admin.text);
    await page.sees('Sign out');
    const name = encodeURIComponent(`xss/${SCRIPT}`);
    const lostName = encodeURIComponent(`xss/lost${SCRIPT}`);
    for (const [hash, text] of [
      ['#/?prefix=xss', SCRIPT],
      [`#/lock/${name}`, SCRIPT],
      [`#/lock/${lostName}`, 'taken away'],
      [`#/client/${encodeURIComponent(SCRIPT)}`, 'holds'],
      [`#/lease/${lease}`, SCRIPT],
      ['#/timeline?prefix=xss', 'holds'],
      ['#/elections', SCRIPT],
      ['#/keys?prefix=xss', SCRIPT],
      ['#/audit', SCRIPT],
      ['#/stuck?holds=10000', 'Stuck and lost'],
    ]) {
      await page.page.goto(`${page.base}/${hash}`);
      await page.sees(text);
      assert.equal(await page.page.evaluate(() => window.stored), undefined, hash);
      assert.equal(await page.page.locator('main img, main script').count(), 0, hash);
    }
    await page.page.goto(`${page.base}/#/lock/${name}`);
    await page.page.getByRole('button', { name: 'Take away once stopped…' }).click();
    await page.page.waitForSelector('dialog[open]');
    assert.equal(await page.page.evaluate(() => window.stored), undefined);
    assert.deepEqual(page.problems(), []);
    // What is opened directly is no page.
    const direct = await fetch(`${cluster.url()}/v1/keys/${encodeURIComponent(`xss/${SCRIPT}`)}`, { headers: { Authorization: `Bearer ${admin.text}` } });
    assert.equal(direct.headers.get('x-content-type-options'), 'nosniff');
    assert.doesNotMatch(direct.headers.get('content-type') || '', /html/);
    await page.close();
  },

  async function headers_keep_other_scripts_away_and_let_files_be_kept({ cluster, off }) {
    const page = await fetch(`${cluster.url()}/`);
    const policy = page.headers.get('content-security-policy');
    for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"]) assert.ok(policy.includes(part), policy);
    assert.ok(!policy.includes('unsafe'));
    assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
    assert.equal(page.headers.get('x-frame-options'), 'DENY');
    assert.equal(page.headers.get('cache-control'), 'no-cache');
    const again = await fetch(`${cluster.url()}/`, { headers: { 'If-None-Match': page.headers.get('etag') } });
    assert.equal(again.status, 304);
    const text = await page.text();
    const file = text.match(/src="([^"]+main\.js)"/)[1];
    const script = await fetch(cluster.url() + file);
    assert.equal(script.headers.get('cache-control'), 'public, max-age=31536000, immutable');
    assert.match(script.headers.get('content-type'), /^text\/javascript/);
    for (const wrong of ['/console/0000000000000000/main.js', file.replace('main.js', 'none.js'), file.replace('main.js', 'index.html'), file.replace('main.js', '..%2f..%2fCargo.toml')]) {
      assert.equal((await fetch(cluster.url() + wrong)).status, 404, wrong);
    }
    assert.equal((await fetch(`${cluster.url()}/`, { method: 'POST' })).status, 405);
    assert.equal((await fetch(`${off.url()}/`)).status, 404, 'a member that does not serve the console');
  },

  async function a_read_only_console_shows_everything_and_changes_nothing({ browser, readOnly }) {
    const client = new Client(readOnly.url());
    const lease = await client.lease('safe');
    const { token } = await client.acquire('kept', lease);
    const page = await Page.open(browser, readOnly.url());
    await page.go('#/lock/kept');
    await page.sees('Held by safe');
    await page.sees('read-only');
    assert.ok(await page.page.getByRole('button', { name: 'Take away once stopped…' }).isDisabled());
    // Nothing is done by an address that is opened.
    for (const path of ['/v1/force', `/v1/force?lock=kept&token=${token}&reason=no&now=true`]) {
      const opened = await fetch(readOnly.url() + path);
      assert.ok([404, 405].includes(opened.status), `GET ${path}: ${opened.status}`);
    }
    const body = { lock: 'kept', token, reason: 'no', now: true };
    const refused = await client.ask('POST', '/v1/force', body, { 'Tenure-Console': '1' }).catch((error) => error);
    assert.match(refused.message, /read-only/);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },
];
