// Tests locks, their loss and their release against a real member.

package tenure_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
	"github.com/tenure-lock/tenure/clients/go/internal/planted"
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

// A client that is cut off is told before the cluster can grant the lock to another client.
func TestALockIsLostBeforeItPassesOn(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	proxy := devcluster.NewProxy(t, address)
	ana, ben := open(t, proxy.Address(), "ana"), open(t, address, "ben")
	guard := lock(t, ana, deploy(t))
	passed := make(chan time.Time)
	go func() {
		lock(t, ben, deploy(t))
		passed <- time.Now()
	}()
	eventually(t, "ben waits", waiting(t, ben, deploy(t), 1))
	proxy.Refuse()
	cut := time.Now()
	<-guard.Context().Done()
	told := time.Now()
	if took := told.Sub(cut); took > ttl/2+200*time.Millisecond {
		t.Fatal("told late", took)
	}
	cause := context.Cause(guard.Context())
	var lost *tenure.LostError
	if !errors.As(cause, &lost) || lost.Cause != tenure.CauseUnreachable || lost.Lock != deploy(t) {
		t.Fatal(cause)
	}
	if granted := <-passed; !granted.After(told) {
		t.Fatal("the lock passed on before its holder was told", told.Sub(granted))
	}
	// A loss is final.
	proxy.Resume()
	time.Sleep(ttl / 4)
	if !errors.Is(guard.Check(), tenure.ErrLost) {
		t.Fatal("it is lost for good")
	}
}

func TestAShortCutCostsNothing(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	proxy := devcluster.NewProxy(t, address)
	client := open(t, proxy.Address(), "ana")
	guard := lock(t, client, deploy(t))
	for range 8 {
		proxy.Cut()
		time.Sleep(ttl / 4)
		if err := guard.Check(); err != nil {
			t.Fatal(err)
		}
	}
	release(t, guard)
}

func TestWorkThatOutlivedItsLockIsNoSuccess(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	proxy := devcluster.NewProxy(t, address)
	client := open(t, proxy.Address(), "ana")
	stubborn := errors.New("the work's own error")
	for _, own := range []error{nil, stubborn} {
		proxy.Resume()
		err := client.Do(context.Background(), deploy(t), func(ctx context.Context, guard *tenure.Guard) error {
			proxy.Refuse()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), tenure.ErrLost) {
				t.Error(context.Cause(ctx))
			}
			return own
		})
		if !errors.Is(err, tenure.ErrLost) || own != nil && !errors.Is(err, own) {
			t.Fatal(err)
		}
		var lost *tenure.LostError
		if !errors.As(err, &lost) || lost.Cause != tenure.CauseUnreachable {
			t.Fatal(err)
		}
	}
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

// A lock that is taken away passes on when its holder says that the work has stopped, and not before.
func TestAForcedLockPassesOnWhenTheWorkHasStopped(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ops := open(t, address, "ana"), open(t, address, "ops@host")
	guard := lock(t, ana, deploy(t), tenure.TTL(20*time.Second))
	if err := ops.Force(context.Background(), deploy(t), guard.Token(), "stuck"); err != nil {
		t.Fatal(err)
	}
	err := guard.Lost(context.Background())
	var lost *tenure.LostError
	if !errors.As(err, &lost) || lost.Cause != tenure.CauseForced || lost.By != "ops@host" || lost.Reason != "stuck" {
		t.Fatal(err)
	}
	if _, ok, err := ops.TryLock(context.Background(), deploy(t)); ok || err != nil {
		t.Fatal("the work under it has not stopped", ok, err)
	}
	if err := guard.Release(context.Background()); !errors.Is(err, tenure.ErrLost) {
		t.Fatal("the release reports the loss", err)
	}
	next, err := ops.Lock(context.Background(), deploy(t), tenure.Wait(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	release(t, next)
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
	if !errors.Is(err, no) {
		t.Fatal(err)
	}
	release(t, lock(t, client, "ledger", tenure.Wait(5*time.Second)))
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

// An answer is swallowed and the connection cut: the repetition has the same id, so the write happens once.
func TestARepeatedRequestTakesEffectOnce(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	for _, planting := range []struct {
		bug  planted.Bug
		want string
	}{{planted.None, ""}, {planted.RetryWithoutID, "COMPARE_FAILED"}} {
		proxy := devcluster.NewProxy(t, address)
		ctx := planted.Context(context.Background(), planting.bug)
		client := openWith(t, ctx, tenure.Config{Addresses: []string{proxy.Address()}, TTL: ttl})
		watcher := open(t, address, "watcher")
		key := "once" + planting.want
		proxy.SilenceAnswers()
		done := make(chan error)
		go func() {
			_, err := client.Put(context.Background(), key, []byte("1"), tenure.IfAbsent())
			done <- err
		}()
		eventually(t, "the write has happened", func() bool {
			_, found, err := watcher.Get(context.Background(), key)
			return err == nil && found
		})
		proxy.Cut()
		proxy.Resume()
		err := <-done
		var refused *tenure.RefusedError
		switch {
		case planting.want == "" && err != nil:
			t.Fatal(err)
		case planting.want != "" && (!errors.As(err, &refused) || refused.Reason != planting.want):
			t.Fatal("the planted bug is not caught", err)
		}
	}
}
