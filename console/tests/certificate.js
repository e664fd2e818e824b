// Signing in with a client certificate, and what the console shows of the members' certificates.

import assert from 'node:assert/strict';
import { Authority, fetchWith } from './certificates.js';
import { Client, Cluster, temporary, until } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary, opens) {
  const dir = temporary();
  const [members, clients] = [new Authority(dir, 'members-ca'), new Authority(dir, 'clients-ca')];
  const [known, unknown] = [clients.sign('ops', ['DNS:ops.example']), clients.sign('guest', ['DNS:guest.example'])];
  const fetchKnown = fetchWith(known, members);
  const flags = (name) => {
    const { cert, key } = members.sign(name, [`DNS:${name}`, 'IP:127.0.0.1'], name === 'b' ? 5 : 30);
    return ['--tls-cert', cert, '--tls-key', key, '--tls-member-ca', members.cert, '--tls-client-ca', clients.cert];
  };
  const cluster = opens(await Cluster.start(binary, 3, [], { fetch: fetchKnown, flags }));
  const client = new Client(cluster.url(), undefined, fetchKnown);
  // The certificate stands for an administrator; a key of another principal that may read.
  const all = ['read', 'observe', 'acquire', 'elect', 'keys', 'force', 'operate', 'administer', 'sign'];
  const local = cluster.administrator();
  await local.principal('operator', [{ verbs: all, prefix: '' }]);
  const reader = await local.principal('reader', [{ verbs: ['read', 'observe'], prefix: '' }]);
  await local.ask('PUT', '/v1/access/certificate-rules/ops', { pattern: 'dns:ops.example', principal: 'operator' });
  await local.ask('PUT', '/v1/access/identity', { enabled: true });
  return { cluster, client, known, unknown, reader };
}

/** A page of a browser that has a certificate, or none. The authority of the member is not one that it knows. */
const open = (browser, cluster, files, member = cluster.members[0]) =>
  Page.open(browser, cluster.url(member), {
    ignoreHTTPSErrors: true,
    clientCertificates: files && [{ origin: cluster.url(member), certPath: files.cert, keyPath: files.key }],
  });

export const tests = [
  async function a_known_certificate_needs_no_key({ browser, cluster, client, known }) {
    await client.acquire('cert/lock', await client.lease('worker'));
    const page = await open(browser, cluster, known);
    await page.go('#/lock/cert%2Flock');
    await page.sees('Held by worker');
    await page.sees('operator');
    assert.equal(await page.page.locator('input[name=key]').count(), 0);
    assert.equal(await page.page.getByRole('button', { name: 'Sign out' }).count(), 0, 'there is no session to end');
    assert.equal((await page.context.cookies()).length, 0);
    // It acts as the principal of the certificate.
    await page.page.getByRole('button', { name: 'Take away now…' }).click();
    await page.page.fill('dialog input[name=reason]', 'by certificate');
    await page.page.fill('dialog input[name=typed]', 'cert/lock');
    await page.page.locator('dialog button.danger').click();
    await page.sees('The lock is free');
    const { changes } = await client.ask('GET', '/v1/history?cause=forced&limit=1');
    assert.deepEqual([changes[0].events[0].by, changes[0].events[0].reason], ['operator', 'by certificate']);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_certificate_that_no_rule_knows_needs_a_key_beside_it({ browser, cluster, unknown, reader }) {
    const page = await open(browser, cluster, unknown);
    page.expected.push(/401/);
    await page.page.goto(`${page.base}/`);
    await page.page.fill('input[name=key]', reader.text);
    await page.page.getByRole('button', { name: 'Sign in' }).click();
    await page.sees('Sign out');
    await page.sees('reader');
    const [cookie] = await page.context.cookies();
    assert.ok(cookie.secure && cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
    await page.page.getByRole('button', { name: 'Sign out' }).click();
    await page.page.waitForSelector('input[name=key]');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_browser_without_a_certificate_is_refused_the_page_itself({ browser, cluster }) {
    const page = await open(browser, cluster, undefined);
    page.expected.push(/401/);
    const answer = await page.page.goto(`${page.base}/`);
    assert.equal(answer.status(), 401);
    assert.match(await page.text(), /demands a client certificate/);
    await page.close();
  },

  async function a_rule_that_is_deleted_ends_what_the_page_may_see({ browser, cluster, client, unknown }) {
    await client.ask('PUT', '/v1/access/certificate-rules/guest', { pattern: 'dns:guest.example', principal: 'reader' });
    const page = await open(browser, cluster, unknown);
    page.expected.push(/401/);
    await page.go('#/');
    await page.sees('Longest waits');
    await client.ask('DELETE', '/v1/access/certificate-rules/guest');
    await page.page.waitForSelector('input[name=key]');
    await page.close();
  },

  async function every_member_shows_the_certificates_of_all({ browser, cluster, known }) {
    const expected = new Map();
    for (const member of cluster.members) {
      const page = await open(browser, cluster, known, member);
      await page.go('#/members');
      await page.sees('the certificate of b expires in 4d');
      const rows = page.page.locator('section:has(#members) tbody tr');
      const cells = async () => (await rows.evaluateAll((found) => found.map((row) => [row.querySelector('strong').innerText, row.querySelector('td:nth-child(9) time')?.dateTime, row.cells[8].innerText])));
      await until('all are known', async () => (await cells()).every(([, at]) => at));
      for (const [name, at, text] of await cells()) {
        assert.equal(at, expected.get(name) ?? at, `${member.name} says of ${name} what the others say`);
        expected.set(name, at);
        const days = (Date.parse(at) - Date.now()) / 86_400_000;
        const left = name === 'b' ? 5 : 30;
        assert.ok(days > left - 1 && days <= left, `${name}: ${days} days`);
        assert.equal(/soon/.test(text), name === 'b', text);
      }
      assert.deepEqual(page.problems(), []);
      await page.close();
    }
    assert.equal(expected.size, 3);
  },

  async function a_certificate_of_a_member_that_is_down_is_not_known({ browser, cluster, known }) {
    const [here, down] = cluster.members;
    const page = await open(browser, cluster, known, here);
    await page.go('#/members');
    const row = page.page.locator(`tr:has(strong:text-is("${down.name}"))`);
    await row.locator('td:nth-child(9) time').waitFor();
    await cluster.kill(down);
    await row.filter({ hasText: 'not known' }).waitFor();
    cluster.run(down);
    await row.locator('td:nth-child(9) time').waitFor();
    await page.close();
  },
];
