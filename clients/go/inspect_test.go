// Tests what operators and cautious resources read and end, against a real member.

package tenure_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

func explain(t testing.TB, client *tenure.Client, name string, options ...tenure.ExplainOption) *tenure.Explanation {
	t.Helper()
	explained, err := client.Explain(context.Background(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return explained
}

func TestAnExplanationNamesTheWaitersAndTheirPlaces(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, name := context.Background(), deploy(t)
	if empty := explain(t, a, name); empty.Lock != nil || len(empty.Waiters) != 0 || empty.Revision == 0 {
		t.Fatalf("%+v", empty)
	}
	held := lock(t, a, name, tenure.Slots(4), tenure.Take(4), tenure.MinHold(time.Millisecond),
		tenure.LockDelay(time.Second), tenure.MaxHold(time.Minute), tenure.ProgressWithin(time.Minute))
	plain := acquiring(b, name, tenure.Slots(4), tenure.Take(3), tenure.Supersede("main"), tenure.Wait(time.Minute))
	eventually(t, "one waits", waiting(t, a, name, 1))
	lease, err := b.Lease(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		guard, err := lease.Lock(ctx, name, tenure.Slots(4), tenure.Priority(3))
		if err == nil {
			err = guard.Release(ctx)
		}
		got <- err
	}()
	eventually(t, "two wait", waiting(t, a, name, 2))

	explained := explain(t, a, name)
	holder := explained.Lock.Holders[0]
	if explained.Lock.Slots != 4 || explained.Lock.Created == 0 || holder.Client != "a" || holder.MaxHold == nil ||
		*holder.MaxHold != time.Minute || holder.MinHold != time.Millisecond || holder.LockDelay != time.Second ||
		holder.Left != nil || holder.Renewed == nil || holder.Progress == nil || holder.Progress.Within != time.Minute {
		t.Fatalf("%+v", holder)
	}
	if len(explained.Waiters) != 2 || explained.FreeIfSilent != nil || explained.FreeAtLatest == nil || explained.Own != nil {
		t.Fatalf("%+v", explained)
	}
	first, second := explained.Waiters[0], explained.Waiters[1]
	if first.Lease != lease.ID() || first.Priority != 3 || first.Take != 1 || first.Left != nil || first.Ahead != 0 ||
		first.Supersede != "" {
		t.Fatalf("%+v", first)
	}
	if second.Client != "b" || second.Lease == 0 || second.Lease == first.Lease || second.Mode != "slot" ||
		second.Slots != 4 || second.Take != 3 || second.Supersede != "main" || second.Ahead != 1 || second.Left == nil ||
		*second.Left > time.Minute || second.Passable <= 0 || second.Created == 0 || second.Any || second.Pool != "" ||
		!slices.Equal(second.Locks, []string{name}) {
		t.Fatalf("%+v", second)
	}
	if step := explained.Chain[0]; step.Lock != name || step.Client != "a" || step.Lease != held.Lease() || explained.ChainGoesOn {
		t.Fatalf("%+v", explained.Chain)
	}
	own := explain(t, a, name, tenure.AheadOf(second.Lease))
	if own.Own == nil || own.Own.Lease != second.Lease || len(own.Waiters) != 1 || own.Waiters[0].Lease != first.Lease {
		t.Fatalf("%+v", own)
	}
	release(t, held)
	for _, done := range []<-chan error{plain, got} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	explained = explain(t, a, name)
	if explained.UsuallyHeld != nil && explained.UsuallyOf == 0 {
		t.Fatalf("%+v", explained)
	}
}

func TestAHoldGoesToTheWaiterThatAnExplanationNames(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	name := deploy(t)
	held := lock(t, a, name)
	next := acquiring(b, name)
	eventually(t, "b waits", waiting(t, a, name, 1))
	if _, err := held.HandOn(context.Background(), explain(t, a, name).Waiters[0].Lease); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
}

func TestAnExplanationShowsTheClosedPrefixAndAChain(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, prefix := context.Background(), t.Name()+"/"
	x, y := prefix+"x", prefix+"y"
	first, err := a.Lease(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	held := must(t)(first.Lock(ctx, x))
	other := lock(t, b, y)
	waits := choosing(func() (*tenure.Guard, error) { return first.Lock(ctx, y) })
	eventually(t, "a waits for b", waiting(t, b, y, 1))
	explained := explain(t, b, x)
	if explained.FreeIfSilent == nil || *explained.FreeIfSilent > ttl || explained.FreeAtLatest != nil {
		t.Fatalf("%+v", explained)
	}
	chain := explained.Chain
	if len(chain) != 2 || chain[0].Client != "a" || chain[1].Lock != y || chain[1].Lease != other.Lease() {
		t.Fatalf("%+v", chain)
	}
	release(t, other)
	release(t, (<-waits).guard)
	if err := a.Drain(ctx, prefix, "new disks"); err != nil {
		t.Fatal(err)
	}
	if drained := explain(t, b, x).Drained; drained == nil || drained.Prefix != prefix || drained.By != "a" ||
		drained.Reason != "new disks" || drained.Created == 0 {
		t.Fatalf("%+v", drained)
	}
	if _, err := a.Undrain(ctx, prefix); err != nil {
		t.Fatal(err)
	}
	release(t, held)
}

func TestALeaseOfAnotherClientIsRevokedAtOnce(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, name := context.Background(), deploy(t)
	held := lock(t, a, name)
	if err := b.Revoke(ctx, held.Lease(), "the machine is gone", tenure.Now()); err != nil {
		t.Fatal(err)
	}
	// The holder has not said that its work has stopped.
	next, ok, err := b.TryLock(ctx, name)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	var lost *tenure.LostError
	if err := held.Lost(ctx); !errors.As(err, &lost) || lost.Cause != tenure.CauseRevoked || lost.By != "b" ||
		lost.Reason != "the machine is gone" {
		t.Fatal(err)
	}
	if err := b.Revoke(ctx, held.Lease(), "again"); reason(err) != "LEASE_NOT_FOUND" {
		t.Fatal(err)
	}
	release(t, next)
}

func TestALockIsTakenAwayInTheNameOfAnOperator(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, name := context.Background(), deploy(t)
	held := lock(t, a, name)
	remaining, err := b.Force(ctx, name, held.Token(), "stuck", tenure.By("ana"))
	// The cluster rounds the end of a lease up.
	if err != nil || remaining <= 0 || remaining > ttl+10*time.Millisecond {
		t.Fatal(remaining, err)
	}
	var lost *tenure.LostError
	if err := held.Lost(ctx); !errors.As(err, &lost) || lost.Cause != tenure.CauseForced || lost.By != "ana" {
		t.Fatal(err)
	}
	_ = held.Release(ctx)
	again := lock(t, a, name, tenure.Wait(5*time.Second))
	if remaining, err := b.Force(ctx, name, again.Token(), "now", tenure.Now()); err != nil || remaining != 0 {
		t.Fatal(remaining, err)
	}
	if err := again.Lost(ctx); !errors.As(err, &lost) || lost.By != "b" {
		t.Fatal(err)
	}
	revoked := lock(t, a, name, tenure.Wait(5*time.Second))
	if err := b.Revoke(ctx, revoked.Lease(), "gone", tenure.By("ana")); err != nil {
		t.Fatal(err)
	}
	if err := revoked.Lost(ctx); !errors.As(err, &lost) || lost.Cause != tenure.CauseRevoked || lost.By != "ana" {
		t.Fatal(err)
	}
}
