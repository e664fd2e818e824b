// Every act: what it says before, what it asks for, and what it does.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client, Cluster, sleep, until } from './cluster.js';
import { Page } from './browser.js';

export async function stage(binary, opens) {
  const cluster = opens(await Cluster.start(binary, 3));
  return { cluster, client: new Client(cluster.url()) };
}

async function fill(page, { reason, typed }) {
  if (reason) await page.page.fill('dialog input[name=reason]', reason);
  if (typed) await page.page.fill('dialog input[name=typed]', typed);
}

export const tests = [
  async function a_holder_is_asked_to_stop_and_followed_until_it_has({ browser, cluster, client }) {
    // Its command does not end when it is told to, but when there is a file.
    const done = join(cluster.dir, 'done');
    const work = ['sh', '-c', 'trap : TERM; until [ -e "$0" ]; do sleep 0.1; done', done];
    cluster.command('run', 'acts/stop', '--client', 'stubborn', '--metadata', 'long work', '--ttl', '30m', '--grace', '5m', '--', ...work);
    const { token } = await until('it holds', async () => (await client.ask('GET', '/v1/locks/acts%2Fstop')).lock?.holders[0]);
    const next = await client.lease('patient');
    await client.queue('acts/stop', next);
    const page = await Page.open(browser, cluster.url());
    // The lease of the former holder ends with its command: the page may ask for it once more.
    page.expected.push(/404/);
    await page.go('#/lock/acts%2Fstop');
    await page.page.getByRole('button', { name: 'Take away once stopped…' }).click();
    await page.sees('stays closed until it confirms');
    await page.sees('from now: then its lease would have ended (ttl 30m');
    assert.deepEqual(await page.violations(), []);
    const go = page.page.locator('dialog button.danger');
    assert.ok(await go.isDisabled());
    await fill(page, { reason: 'it is needed', typed: 'acts/sto' });
    assert.ok(await go.isDisabled(), 'the name must be typed in full');
    await fill(page, { typed: 'acts/stop' });
    await go.click();
    await page.sees('The holder was told to stop');
    await page.sees('stays closed until it confirms');
    await page.page.locator('dialog').getByRole('button', { name: 'Take away now…' }).waitFor();
    writeFileSync(done, '');
    await page.sees('The former holder has stopped, and has confirmed it.');
    await page.sees('patient holds it now');
    await page.page.getByRole('button', { name: 'Close' }).click();
    await page.sees('“it is needed”');
    const history = await client.ask('GET', '/v1/locks/acts%2Fstop?view=history&archive=true');
    const forced = history.changes.flatMap((change) => change.events).find((event) => event.cause === 'forced');
    assert.equal(forced.token, token);
    assert.deepEqual([forced.by, forced.reason], ['console', 'it is needed']);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_holder_that_does_not_confirm_runs_out_of_time({ browser, cluster, client }) {
    // It renews its lease until the act, and is silent then.
    const lease = await client.lease('silent-2', 8_000);
    const renewals = setInterval(() => client.ask('POST', `/v1/leases/${lease}/renew`).catch(() => undefined), 500);
    await client.acquire('acts/silent', lease);
    const page = await Page.open(browser, cluster.url());
    // Its lease ends while the page reads it.
    page.expected.push(/404/);
    await page.go('#/lock/acts%2Fsilent');
    await page.page.getByRole('button', { name: 'Take away once stopped…' }).click();
    await fill(page, { reason: 'it is needed', typed: 'acts/silent' });
    clearInterval(renewals);
    await page.page.locator('dialog button.danger').click();
    await page.sees('stays closed until it confirms');
    await page.sees('The time of the former holder is over');
    await page.sees('The lock is free');
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_lock_is_taken_away_now({ browser, cluster, client }) {
    const lease = await client.lease('frozen');
    await client.acquire('acts/now', lease);
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/acts%2Fnow');
    await page.page.getByRole('button', { name: 'Take away now…' }).click();
    await page.sees('only a fence that checks tokens protects');
    await fill(page, { reason: 'frozen', typed: 'acts/now' });
    await page.page.locator('dialog button.danger').click();
    await page.sees('The lock is free');
    assert.equal((await client.ask('GET', '/v1/locks/acts%2Fnow')).lock, undefined);
    await page.close();
  },

  async function a_lock_that_nobody_holds_and_is_closed_is_opened_at_once({ browser, cluster, client }) {
    const lease = await client.lease('silent', 1_800_000);
    const { token } = await client.acquire('acts/closed', lease);
    await client.ask('POST', '/v1/force', { lock: 'acts/closed', token, reason: 'it is needed', by: 'ops' });
    const resting = await client.acquire('acts/resting', lease, { min_hold_ms: 1_800_000 });
    await client.release('acts/resting', lease, resting.token);
    const page = await Page.open(browser, cluster.url());
    for (const [lock, shown, label, said] of [
      ['acts/closed', 'Taken away from silent by ops: “it is needed”', 'Take away now…', 'has not confirmed that it has stopped'],
      ['acts/resting', 'its min hold of 30m since the grant', 'Open now…', 'The rest of its min hold is skipped'],
    ]) {
      await page.go(`#/lock/${encodeURIComponent(lock)}`);
      await page.sees(shown);
      assert.equal(await page.page.getByRole('button', { name: 'Take away once stopped…' }).count(), 0);
      await page.page.getByRole('button', { name: label }).click();
      await page.sees(said);
      await fill(page, { reason: 'no time', typed: lock });
      await page.page.locator('dialog button.danger').click();
      await page.sees('The lock is free');
      await page.page.getByRole('button', { name: 'Close', exact: true }).click();
      assert.equal((await client.ask('GET', `/v1/locks/${encodeURIComponent(lock)}`)).lock, undefined);
    }
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_hold_that_ended_meanwhile_is_not_taken_from_the_next_one({ browser, cluster, client }) {
    const lease = await client.lease('first');
    const { token } = await client.acquire('acts/raced', lease);
    const page = await Page.open(browser, cluster.url());
    await page.go('#/lock/acts%2Fraced');
    await page.page.getByRole('button', { name: 'Take away now…' }).click();
    await fill(page, { reason: 'late', typed: 'acts/raced' });
    await client.release('acts/raced', lease, token);
    await client.acquire('acts/raced', await client.lease('second'));
    page.expected.push(/409|412|404|423/);
    await page.page.locator('dialog button.danger').click();
    await page.page.waitForSelector('dialog .problem');
    const { lock } = await client.ask('GET', '/v1/locks/acts%2Fraced');
    assert.equal(lock.holders[0].client, 'second');
    await page.close();
  },

  async function a_lease_is_revoked_with_everything_it_has({ browser, cluster, client }) {
    const lease = await client.lease('leaver', 2_000_000);
    await client.acquire('acts/lease', lease);
    const page = await Page.open(browser, cluster.url());
    await page.go(`#/lease/${lease}`);
    await page.page.getByRole('button', { name: 'Revoke lease…' }).click();
    await page.sees('loses lock acts/lease');
    await page.sees('from now: then the lease would have ended');
    await fill(page, { reason: 'gone', typed: 'leaver' });
    await page.page.locator('dialog button.danger').click();
    await page.sees('Revoked at revision');
    page.expected.push(/404/);
    await page.page.getByRole('button', { name: 'Close' }).click();
    await page.sees('does not exist any more');
    await page.close();
  },

  async function leadership_moves_to_the_chosen_member({ browser, cluster }) {
    const page = await Page.open(browser, cluster.url());
    await page.go('#/members');
    // The cluster may choose another leader at any time: a member that leads already has no such button, and one that
    // cannot take over in time is refused.
    await until('the chosen member leads', async () => {
      const chosen = await page.page.locator('tr:has(button:text-is("Lead…")) strong').first().innerText();
      await page.page.locator(`tr:has(strong:text-is("${chosen}"))`).getByRole('button', { name: 'Lead…' }).click({ timeout: 5_000 });
      await page.sees('hands over to it');
      await page.page.getByRole('button', { name: 'Transfer leadership' }).click();
      await page.page.waitForSelector('dialog .problem, dialog .outcome');
      const moved = (await page.page.locator('dialog .outcome').count()) > 0;
      await page.page.keyboard.press('Escape');
      await page.seesNot('Let ');
      for (let tries = 0; moved && tries < 50; tries += 1, await sleep(100)) if ((await cluster.leader()).name === chosen) return true;
      return false;
    });
    await page.close();
  },

  async function a_member_is_invited_added_not_promoted_too_early_and_removed({ browser, cluster, client }) {
    const page = await Page.open(browser, cluster.url(await cluster.leader()));
    await page.go('#/members');
    await page.page.getByRole('button', { name: 'Invite…' }).click();
    await page.page.getByRole('button', { name: 'Make an invitation' }).click();
    await page.sees('tenure serve --name NAME --join');
    await page.page.getByRole('button', { name: 'Close' }).click();
    await page.page.getByRole('button', { name: 'Add…' }).click();
    for (const [field, value] of [['member_id', '123456'], ['name', 'late'], ['member_address', '127.0.0.1:9'], ['client_address', '127.0.0.1:9']]) {
      await page.page.fill(`dialog input[name=${field}]`, value);
    }
    await page.page.getByRole('button', { name: 'Add', exact: true }).click();
    await page.sees('late (learner)');
    await page.page.getByRole('button', { name: 'Close' }).click();
    const row = page.page.locator('tr:has(strong:text-is("late"))');
    await row.getByRole('button', { name: 'Promote…' }).click();
    page.expected.push(/409|412/);
    await page.page.getByRole('button', { name: 'Promote', exact: true }).click();
    await page.page.waitForSelector('dialog .problem');
    await page.page.getByRole('button', { name: 'Cancel' }).click();
    await row.getByRole('button', { name: 'Remove…' }).click();
    await fill(page, { typed: 'late' });
    await page.page.getByRole('button', { name: 'Remove for ever' }).click();
    await page.sees('Done at revision');
    const { members } = await client.ask('GET', '/v1/cluster/members');
    assert.deepEqual(members.map((member) => member.name).sort(), ['a', 'b', 'c']);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },

  async function a_member_that_joined_and_caught_up_is_promoted({ browser, cluster, client }) {
    const page = await Page.open(browser, cluster.url(await cluster.leader()));
    await page.go('#/members');
    await page.page.getByRole('button', { name: 'Invite…' }).click();
    await page.page.getByRole('button', { name: 'Make an invitation' }).click();
    const command = await page.page.locator('dialog pre').innerText();
    await page.page.getByRole('button', { name: 'Close' }).click();
    await cluster.join('d', command.split(' ').pop());
    const row = page.page.locator('tr:has(strong:text-is("d"))');
    await row.filter({ hasText: 'learner' }).filter({ hasText: 'up to date' }).waitFor();
    await until('it is promoted', async () => {
      await row.getByRole('button', { name: 'Promote…' }).click();
      await page.sees('Give d a vote');
      await page.page.getByRole('button', { name: 'Promote', exact: true }).click();
      // It may be a little behind again, and there may be no leader for a moment: then it is refused.
      await page.page.waitForSelector('dialog .problem, dialog .outcome');
      const done = (await page.page.locator('dialog .outcome').count()) > 0;
      if (done) await page.sees('d (follower)');
      await page.page.keyboard.press('Escape');
      await page.seesNot('Give d a vote');
      return done;
    });
    page.expected.push(/409|412/);
    await row.filter({ hasText: 'follower' }).waitFor();
    assert.equal(await row.getByRole('button', { name: 'Promote…' }).count(), 0);
    const voters = async () => (await client.ask('GET', '/v1/cluster')).members.filter((member) => member.role !== 'learner').map((member) => member.name);
    assert.deepEqual((await voters()).sort(), ['a', 'b', 'c', 'd']);
    // Its vote counts: the page says so. It is removed again, so that the other tests find three.
    await page.sees('4 of 4 members up');
    await row.getByRole('button', { name: 'Remove…' }).click();
    await fill(page, { typed: 'd' });
    await page.page.getByRole('button', { name: 'Remove for ever' }).click();
    await page.sees('Done at revision');
    await until('three members are left', async () => (await voters()).length === 3);
    assert.deepEqual(page.problems(), []);
    await page.close();
  },
];
