// Tests locks and their release against a real member.

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

// ttl is short, because losses are waited for, and long enough for a machine that does other things, too.
const ttl = 4 * time.Second

func TestMain(m *testing.M) { devcluster.Main(m) }

// open opens a client that is closed with the test.
func open(t testing.TB, address, name string) *tenure.Client {
	t.Helper()
	return openWith(t, context.Background(), tenure.Config{Addresses: []string{address}, Name: name, TTL: ttl})
}

func openWith(t testing.TB, ctx context.Context, config tenure.Config) *tenure.Client {
	t.Helper()
	client, err := tenure.Open(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// Tests that cut the client off leave guards and unacknowledged releases behind.
		_ = client.Close(ctx)
	})
	return client
}

func lock(t testing.TB, client *tenure.Client, name string, options ...tenure.LockOption) *tenure.Guard {
	t.Helper()
	guard, err := client.Lock(context.Background(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

func release(t testing.TB, guard *tenure.Guard) {
	t.Helper()
	if err := guard.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// deploy is the name of a lock that no other test uses.
func deploy(t testing.TB) string { return t.Name() + "/deploy" }

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not within 10s: " + what)
		}
	}
}

func waiting(t testing.TB, client *tenure.Client, name string, count int) func() bool {
	return func() bool {
		info, err := client.Show(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		return info != nil && info.Waiting == count
	}
}

func TestALockPassesOnWithALargerToken(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ben := open(t, address, "ana"), open(t, address, "ben")
	first := lock(t, ana, deploy(t))
	if err := first.Check(); err != nil || first.Standing() != tenure.Valid {
		t.Fatal(err, first.Standing())
	}
	_, ok, err := ben.TryLock(context.Background(), deploy(t))
	if ok || err != nil {
		t.Fatal("a held lock was granted", ok, err)
	}
	_, err = ben.Lock(context.Background(), deploy(t), tenure.NoWait())
	var refused *tenure.RefusedError
	if !errors.As(err, &refused) || refused.Holder == nil || refused.Holder.Client != "ana" {
		t.Fatal("the refusal names the holder", err)
	}
	second := make(chan *tenure.Guard)
	go func() { second <- lock(t, ben, deploy(t)) }()
	eventually(t, "ben waits", waiting(t, ana, deploy(t), 1))
	release(t, first)
	guard := <-second
	if guard.Token() <= first.Token() {
		t.Fatal("tokens increase", guard.Token(), first.Token())
	}
	if err := first.Check(); !errors.Is(err, &tenure.LostError{Cause: tenure.CauseReleased}) {
		t.Fatal("a released guard is not held", err)
	}
	if err := first.Context().Err(); !errors.Is(err, context.Canceled) {
		t.Fatal("its context has ended", err)
	}
	release(t, guard)
}

func TestTheContextCancelsTheWaitingOnly(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ben := open(t, address, "ana"), open(t, address, "ben")
	ctx, cancel := context.WithCancel(context.Background())
	guard, err := ana.Lock(ctx, deploy(t))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if guard.Check() != nil || guard.Context().Err() != nil {
		t.Fatal("the guard outlives the context that it was acquired with")
	}
	waits, stop := context.WithCancel(context.Background())
	failed := make(chan error)
	go func() {
		_, err := ben.Lock(waits, deploy(t))
		failed <- err
	}()
	eventually(t, "ben waits", waiting(t, ana, deploy(t), 1))
	stop()
	err = <-failed
	if !errors.Is(err, context.Canceled) || tenure.EffectOf(err) != tenure.EffectNone {
		t.Fatal(err)
	}
	eventually(t, "ben has left the queue", waiting(t, ana, deploy(t), 0))
	release(t, guard)
}

func TestAWaitEndsAfterItsTime(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ben := open(t, address, "ana"), open(t, address, "ben")
	guard := lock(t, ana, deploy(t))
	began := time.Now()
	_, err := ben.Lock(context.Background(), deploy(t), tenure.Wait(300*time.Millisecond))
	if waited := time.Since(began); !errors.Is(err, tenure.ErrWaitTimeout) || waited > time.Second {
		t.Fatal(err, waited)
	}
	if !tenure.Retryable(err) {
		t.Fatal("it may succeed later")
	}
	release(t, guard)
}

func TestDoReleasesAndPassesErrorsOn(t *testing.T) {
	t.Parallel()
	client := open(t, devcluster.Address(), "ana")
	own := errors.New("the work's own error")
	free := func() {
		t.Helper()
		guard, ok, err := client.TryLock(context.Background(), deploy(t))
		if !ok || err != nil {
			t.Fatal("the lock was not released", err)
		}
		release(t, guard)
	}
	err := client.Do(context.Background(), deploy(t), func(context.Context, *tenure.Guard) error { return own })
	if err != own {
		t.Fatal(err)
	}
	free()
	if err := client.Do(context.Background(), deploy(t), func(context.Context, *tenure.Guard) error { return nil }); err != nil {
		t.Fatal(err)
	}
	free()
	ctx, cancel := context.WithCancel(context.Background())
	err = client.Do(ctx, deploy(t), func(ctx context.Context, _ *tenure.Guard) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, tenure.ErrLost) {
		t.Fatal(err)
	}
	free()
	func() {
		defer func() { _ = recover() }()
		_ = client.Do(context.Background(), deploy(t), func(context.Context, *tenure.Guard) error { panic("at work") })
		t.Error("the panic goes on")
	}()
	if err := client.Do(context.Background(), deploy(t), func(context.Context, *tenure.Guard) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestModesSlotsAndSeveralLocks(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ben := open(t, address, "ana"), open(t, address, "ben")
	reader, other := lock(t, ana, "cache", tenure.Shared()), lock(t, ben, "cache", tenure.Shared())
	if _, ok, err := ben.TryLock(context.Background(), "cache"); ok || err != nil {
		t.Fatal("no writer beside readers", err)
	}
	release(t, reader)
	release(t, other)

	one, two := lock(t, ana, "pool", tenure.Slots(2)), lock(t, ben, "pool", tenure.Slots(2))
	first, ok := one.Slot()
	second, too := two.Slot()
	if !ok || !too || first == second {
		t.Fatal("slots have numbers", first, second)
	}
	if _, ok, err := ana.TryLock(context.Background(), "pool", tenure.Slots(2)); ok || err != nil {
		t.Fatal("there are two slots", err)
	}
	release(t, one)
	release(t, two)

	both, err := ana.LockAll(context.Background(), []string{"b", "a"})
	if err != nil {
		t.Fatal(err)
	}
	if locks := both.Locks(); len(locks) != 2 || both.Name() != "a" {
		t.Fatal(locks)
	}
	if _, ok, err := ben.TryLock(context.Background(), "b"); ok || err != nil {
		t.Fatal("both are held", err)
	}
	release(t, both)

	writer := lock(t, ana, "cache", tenure.Metadata([]byte("v1")))
	before := writer.Token()
	if err := writer.Downgrade(context.Background()); err != nil || writer.Token() <= before {
		t.Fatal(err, writer.Token())
	}
	if err := writer.Update(context.Background(), []byte{0xff, 0xfe}); err != nil {
		t.Fatal(err)
	}
	info, err := ben.Show(context.Background(), "cache")
	if err != nil || string(info.Holders[0].Metadata) != "\xff\xfe" || info.Holders[0].Mode != "shared" {
		t.Fatal(info, err)
	}
	release(t, writer)
}

func TestLocksUnderOneLease(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	client := open(t, address, "ana")
	lease, err := client.Lease(context.Background(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := lease.Lock(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(context.Background()); !errors.As(err, new(*tenure.StillHeldError)) {
		t.Fatal("a lease in use is not released", err)
	}
	if _, ok, err := lease.TryLock(context.Background(), "a"); ok || err != nil {
		t.Fatal("nothing is held twice", err)
	}
	again, err := guard.Reenter()
	if err != nil {
		t.Fatal(err)
	}
	release(t, guard)
	if err := again.Check(); err != nil {
		t.Fatal("the lock is held until its last guard is released", err)
	}
	next := make(chan *tenure.Guard)
	go func() {
		guard, err := lease.Lock(context.Background(), "a")
		if err != nil {
			t.Error(err)
		}
		next <- guard
	}()
	select {
	case <-next:
		t.Fatal("the second request waits")
	case <-time.After(50 * time.Millisecond):
	}
	release(t, again)
	release(t, <-next)
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Lock(context.Background(), "a"); !errors.Is(err, tenure.ErrLost) {
		t.Fatal("the lease has ended", err)
	}
}

func TestCloseWaitsForGuardsAndEndsWaits(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ben := open(t, address, "ana"), open(t, address, "ben")
	guard := lock(t, ana, deploy(t))
	failed := make(chan error)
	go func() {
		_, err := ben.Lock(context.Background(), deploy(t))
		failed <- err
	}()
	eventually(t, "ben waits", waiting(t, ana, deploy(t), 1))
	if err := ben.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, tenure.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := ben.Lock(context.Background(), "other"); !errors.Is(err, tenure.ErrClosed) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var held *tenure.StillHeldError
	if err := ana.Close(ctx); !errors.As(err, &held) || len(held.Locks) != 1 {
		t.Fatal(err)
	}
	if guard.Check() == nil {
		t.Fatal("nothing renews a guard of a closed client")
	}
}

func TestALockerIsASyncLocker(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	client := open(t, address, "ana")
	var count, inside atomic.Int32
	var group sync.WaitGroup
	for range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			locker := client.Locker("counter")
			for range 5 {
				locker.Lock()
				if inside.Add(1) != 1 {
					t.Error("two hold it at once")
				}
				count.Add(1)
				inside.Add(-1)
				locker.Unlock()
			}
		}()
	}
	group.Wait()
	if count.Load() != 20 {
		t.Fatal(count.Load())
	}
}

func TestAFenceIsRaisedBeforeTheGuardIsHandedOut(t *testing.T) {
	t.Parallel()
	client := open(t, devcluster.Address(), "ana")
	var raised tenure.Token
	guard, err := client.Lock(context.Background(), "ledger", tenure.Fence(
		func(_ context.Context, lock tenure.GrantedLock) error { raised = lock.Token; return nil }))
	if err != nil || raised != guard.Token() {
		t.Fatal(err, raised)
	}
	release(t, guard)
	no := errors.New("no")
	_, err = client.Lock(context.Background(), "ledger", tenure.Fence(
		func(context.Context, tenure.GrantedLock) error { return no }))
	var refused *tenure.FenceError
	if !errors.Is(err, no) || !errors.As(err, &refused) || refused.Lock != "ledger" ||
		tenure.EffectOf(err) != tenure.EffectNone {
		t.Fatal(err)
	}
	release(t, lock(t, client, "ledger", tenure.Wait(5*time.Second)))
}

func TestALossWhileAFenceIsRaisedIsReportedAsALoss(t *testing.T) {
	t.Parallel()
	client, other, name := open(t, devcluster.Address(), "ana"), open(t, devcluster.Address(), "ben"), deploy(t)
	own := errors.New("the connection is closed")
	for _, ends := range []func(error) error{
		func(error) error { return nil },
		func(ended error) error { return ended },
		func(error) error { return own },
	} {
		var of tenure.Token
		_, err := client.Lock(context.Background(), name, tenure.Fence(
			func(ctx context.Context, lock tenure.GrantedLock) error {
				of = lock.Token
				if _, err := other.Force(ctx, lock.Name, lock.Token, "stuck"); err != nil {
					return err
				}
				<-ctx.Done()
				return ends(ctx.Err())
			}))
		var lost *tenure.LostError
		var fence *tenure.FenceError
		if !errors.As(err, &lost) || lost.Cause != tenure.CauseForced || lost.By != "ben" || lost.Token != of ||
			errors.As(err, &fence) {
			t.Fatalf("%T %v", err, err)
		}
	}
	release(t, lock(t, client, name, tenure.Wait(5*time.Second)))
}

func TestAFenceHasTheTimeOfItsCallerOrOfAnyRequest(t *testing.T) {
	t.Parallel()
	name := deploy(t)
	client := openWith(t, context.Background(), tenure.Config{
		Addresses: []string{devcluster.Address()}, Name: "ana", Timeout: time.Second,
	})
	forEver := tenure.Fence(func(ctx context.Context, _ tenure.GrantedLock) error {
		<-ctx.Done()
		return errors.New("interrupted")
	})
	_, err := client.Lock(context.Background(), name, forEver, tenure.Wait(5*time.Second))
	var fence *tenure.FenceError
	if !errors.As(err, &fence) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "within 1") {
		t.Fatalf("%T %v", err, err)
	}
	limited, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = client.Lock(limited, name, forEver, tenure.Wait(5*time.Second))
	var cancelled *tenure.CancelledError
	if !errors.As(err, &cancelled) || !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &fence) ||
		tenure.EffectOf(err) != tenure.EffectNone {
		t.Fatalf("%T %v", err, err)
	}
	release(t, lock(t, client, name, tenure.Wait(5*time.Second)))
}

func TestAFenceThatPanicsGivesTheLockBack(t *testing.T) {
	t.Parallel()
	client, name := open(t, devcluster.Address(), "ana"), deploy(t)
	func() {
		defer func() {
			if why := recover(); why != "the resource is not there" {
				t.Fatal(why)
			}
		}()
		_, _ = client.Lock(context.Background(), name, tenure.Fence(
			func(context.Context, tenure.GrantedLock) error { panic("the resource is not there") }))
	}()
	release(t, lock(t, client, name, tenure.Wait(5*time.Second)))
}

func TestBadInputIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	client := open(t, devcluster.Address(), "ana")
	for reason, options := range map[string][]tenure.LockOption{
		"INVALID_TTL": {tenure.TTL(time.Millisecond)}, "INVALID_GRACE": {tenure.Grace(time.Minute)},
		"INVALID_WINDOW": {tenure.Window(time.Millisecond)}, "INVALID_SLOTS": {tenure.Slots(0)},
		"INVALID_WAIT": {tenure.Wait(-1)},
	} {
		_, err := client.Lock(context.Background(), deploy(t), options...)
		var invalid *tenure.InvalidError
		if !errors.As(err, &invalid) || invalid.Reason != reason {
			t.Error(reason, err)
		}
	}
	for _, name := range []string{"", "a\nb", string([]byte{0xff})} {
		var invalid *tenure.InvalidError
		if _, err := client.Lock(context.Background(), name); !errors.As(err, &invalid) || invalid.Reason != "INVALID_NAME" {
			t.Error(name, err)
		}
	}
}
