// Tests requests for any one of several locks and for any slot of a pool, against a real member.

package tenure_test

import (
	"context"
	"errors"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

// granted is a request on its way.
type granted struct {
	guard *tenure.Guard
	err   error
}

func choosing(acquire func() (*tenure.Guard, error)) <-chan granted {
	done := make(chan granted, 1)
	go func() {
		guard, err := acquire()
		done <- granted{guard, err}
	}()
	return done
}

func must(t testing.TB) func(guard *tenure.Guard, err error) *tenure.Guard {
	return func(guard *tenure.Guard, err error) *tenure.Guard {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return guard
	}
}

func TestAnyOfSeveralLocksIsGrantedAndTheOtherQueuesAreLeft(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, x, y := context.Background(), deploy(t)+"/x", deploy(t)+"/y"
	names := []string{y, x}
	first := must(t)(a.LockAny(ctx, names))
	second := must(t)(a.LockAny(ctx, names))
	if first.Name() != x || second.Name() != y || len(first.Locks()) != 1 {
		t.Fatal(first, second)
	}
	if _, err := b.LockAny(ctx, names, tenure.NoWait()); !errors.Is(err, tenure.ErrHeld) {
		t.Fatal(err)
	}
	third := choosing(func() (*tenure.Guard, error) { return b.LockAny(ctx, names) })
	eventually(t, "b waits for x", waiting(t, a, x, 1))
	eventually(t, "b waits for y", waiting(t, a, y, 1))
	old := second.Token()
	release(t, second)
	got := <-third
	if got.err != nil || got.guard.Name() != y || got.guard.Token() <= old {
		t.Fatal(got.guard, got.err)
	}
	if !waiting(t, a, x, 0)() {
		t.Fatal("b still waits for x")
	}
	worked := false
	work := func(_ context.Context, guard *tenure.Guard) error { worked = guard.Check() == nil; return nil }
	if err := got.guard.Do(ctx, work); err != nil || !worked {
		t.Fatal(err, worked)
	}
	release(t, first)
}

func TestASecondRequestForAnyLockUnderALeaseWaitsForTheFirst(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, x, y := context.Background(), deploy(t)+"/x", deploy(t)+"/y"
	names := []string{x, y}
	lease, err := a.Lease(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	first := must(t)(lease.LockAny(ctx, names))
	plain := must(t)(lease.Lock(ctx, y, tenure.NoWait()))
	if _, err := lease.LockAny(ctx, names, tenure.NoWait()); !errors.Is(err, tenure.ErrHeld) {
		t.Fatal(err)
	}
	second := choosing(func() (*tenure.Guard, error) { return lease.LockAny(ctx, names) })
	old := first.Token()
	release(t, first)
	release(t, plain)
	got := <-second
	if got.err != nil || got.guard.Name() != x || got.guard.Token() <= old {
		t.Fatal(got.guard, got.err)
	}
	release(t, got.guard)

	// A request that is cancelled leaves all queues: with a lease of its own, and under one that goes on.
	held := must(t)(b.LockAll(ctx, names))
	for _, acquire := range []func(context.Context, []string, ...tenure.LockOption) (*tenure.Guard, error){
		a.LockAny, lease.LockAny,
	} {
		until, cancel := context.WithCancel(ctx)
		cancelled := choosing(func() (*tenure.Guard, error) { return acquire(until, names) })
		eventually(t, "it waits", waiting(t, b, y, 1))
		cancel()
		if got := <-cancelled; !errors.Is(got.err, context.Canceled) {
			t.Fatal(got.guard, got.err)
		}
		eventually(t, "it has left x", waiting(t, b, x, 0))
		eventually(t, "it has left y", waiting(t, b, y, 0))
	}
	release(t, held)
	release(t, must(t)(lease.LockAny(ctx, names, tenure.Wait(5*time.Second))))
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestAnySlotOfAPoolIsGrantedAlsoOneThatIsAdded(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, pool := context.Background(), deploy(t)+"/"
	resize := func(name string, slots int) {
		t.Helper()
		if err := a.Resize(ctx, pool+name, slots); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Pool(ctx, pool); reason(err) != "POOL_EMPTY" {
		t.Fatal(err)
	}
	resize("0", 1)
	first := must(t)(a.Pool(ctx, pool))
	if slot, ok := first.Slot(); first.Name() != pool+"0" || !ok || slot != 0 {
		t.Fatal(first, slot, ok)
	}
	if _, err := b.Pool(ctx, pool, tenure.NoWait()); !errors.Is(err, tenure.ErrHeld) {
		t.Fatal(err)
	}
	if _, err := b.Pool(ctx, pool, tenure.Wait(50*time.Millisecond)); !errors.Is(err, tenure.ErrWaitTimeout) {
		t.Fatal(err)
	}
	second := choosing(func() (*tenure.Guard, error) { return b.Pool(ctx, pool) })
	eventually(t, "b waits", waiting(t, a, pool+"0", 1))
	resize("1", 2)
	got := <-second
	if got.err != nil || got.guard.Name() != pool+"1" {
		t.Fatal(got.guard, got.err)
	}
	release(t, got.guard)
	both := must(t)(b.Pool(ctx, pool, tenure.Take(2)))
	if locks := both.Locks(); len(locks) != 2 || locks[1].Name != pool+"1" {
		t.Fatal(locks)
	}
	last := choosing(func() (*tenure.Guard, error) { return b.Pool(ctx, pool) })
	eventually(t, "b waits", waiting(t, a, pool+"0", 1))
	for _, name := range []string{"0", "1"} {
		if err := a.ResizeByRequests(ctx, pool+name); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-last; reason(got.err) != "POOL_EMPTY" {
		t.Fatal(got.err)
	}
	release(t, first)
	release(t, both)
}

func TestBadRequestsForAPoolAreRefusedBeforeAnythingIsSent(t *testing.T) {
	client := open(t, devcluster.Address(), "a")
	ctx := context.Background()
	for _, option := range []tenure.LockOption{tenure.Shared(), tenure.Slots(2), tenure.Take(0)} {
		if _, err := client.Pool(ctx, "gpu/", option); reason(err) != "INVALID_FIELD" {
			t.Fatal(err)
		}
	}
	if _, err := client.Pool(ctx, ""); reason(err) != "INVALID_NAME" {
		t.Fatal(err)
	}
	if _, err := client.LockAny(ctx, nil); reason(err) != "INVALID_FIELD" {
		t.Fatal(err)
	}
	if _, err := client.LockAny(ctx, []string{"x", "x"}, tenure.NoWait()); reason(err) != "DUPLICATE_LOCK" {
		t.Fatal(err)
	}
}
