// Signing in with a client certificate, and what the console shows of the members' certificates.

import assert from 'node:assert/strict';
import { Authority, fetchWith } from './certificates.js';
import { Client, Cluster, temporary } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary, opens) {
  const dir = temporary();
  const [members, clients] = [new Authority(dir, 'members-ca'), new Authority(dir, 'clients-ca')];
  const [known, unknown] = [clients.sign('ops', ['DNS:ops.example']), clients.sign('guest', ['DNS:guest.example'])];
  const fetchKnown = fetchWith(known, members);
  const flags = (name) => {
    const { cert, key } = members.sign(name, [`DNS:${name}`, 'IP:127.0.0.1']);
    return ['--tls-cert', cert, '--tls-key', key, '--tls-member-ca', members.cert, '--tls-client-ca', clients.cert];
  };
  const cluster = opens(await Cluster.start(binary, 1, [], { fetch: fetchKnown, flags }));
  const client = new Client(cluster.url(), undefined, fetchKnown);
  // The certificate stands for an administrator; a key of another principal that may read.
  const all = ['read', 'observe', 'acquire', 'elect', 'keys', 'force', 'operate', 'administer', 'sign'];
  await client.principal('operator', [{ verbs: all, prefix: '' }]);
  const reader = await client.principal('reader', [{ verbs: ['read', 'observe'], prefix: '' }]);
  await client.ask('PUT', '/v1/access/certificate-rules/ops', { pattern: 'dns:ops.example', principal: 'operator' });
  await client.ask('PUT', '/v1/access/identity', { enabled: true });
  return { cluster, client, known, unknown, reader };
}

/** A page of a browser that has a certificate, or none. The authority of the member is not one that it knows. */
const open = (browser, cluster, files) =>
  Page.open(browser, cluster.url(), {
    ignoreHTTPSErrors: true,
    clientCertificates: files && [{ origin: cluster.url(), certPath: files.cert, keyPath: files.key }],
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
    assert.match(await page.text(), /UNAUTHENTICATED/);
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
];
