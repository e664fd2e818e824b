// Tests the options of a request and what can become of a hold, against a real member.

package tenure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

// reason returns the reason of a refusal, or of bad input.
func reason(err error) string {
	var refused *tenure.RefusedError
	var invalid *tenure.InvalidError
	switch {
	case errors.As(err, &refused):
		return refused.Reason
	case errors.As(err, &invalid):
		return invalid.Reason
	}
	return ""
}

// acquiring asks for a lock and hands over what comes of it.
func acquiring(client *tenure.Client, name string, options ...tenure.LockOption) <-chan error {
	done := make(chan error, 1)
	go func() {
		guard, err := client.Lock(context.Background(), name, options...)
		if err == nil {
			err = guard.Release(context.Background())
		}
		done <- err
	}()
	return done
}

func TestSeveralSlotsHaveATokenEach(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, name := context.Background(), deploy(t)
	three := lock(t, a, name, tenure.Slots(4), tenure.Take(3))
	seen := map[tenure.Token]bool{}
	for at, it := range three.Locks() {
		if it.Slot == nil || *it.Slot != at || it.Name != name {
			t.Fatalf("slot %d is %+v", at, it)
		}
		seen[it.Token] = true
	}
	if len(seen) != 3 {
		t.Fatalf("tokens %v", seen)
	}
	if _, got, err := b.TryLock(ctx, name, tenure.Slots(4), tenure.Take(2)); got || err != nil {
		t.Fatal(got, err)
	}
	release(t, three)
	// Under a lease of the caller, the slots have one place in the local queue.
	lease, err := b.Lease(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		guard, err := lease.Lock(ctx, name, tenure.Slots(4), tenure.Take(4))
		if err != nil {
			t.Fatal(err)
		}
		release(t, guard)
	}
}

func TestPriorityAndSupersede(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	name := deploy(t)
	held := lock(t, a, name)
	plain := acquiring(b, name)
	eventually(t, "one waits", waiting(t, a, name, 1))
	urgent := acquiring(b, name, tenure.Priority(5), tenure.Supersede("main"))
	eventually(t, "two wait", waiting(t, a, name, 2))
	newer := acquiring(a, name, tenure.Priority(9), tenure.Supersede("main"))
	if err := <-urgent; reason(err) != "SUPERSEDED" || !strings.Contains(err.Error(), "request of a") {
		t.Fatal(err)
	}
	release(t, held)
	for _, done := range []<-chan error{newer, plain} {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestMinHoldWithholdsAReleasedLock(t *testing.T) {
	client := open(t, devcluster.Address(), "a")
	began, name := time.Now(), deploy(t)
	release(t, lock(t, client, name, tenure.MinHold(500*time.Millisecond)))
	if _, got, err := client.TryLock(context.Background(), name); got || err != nil {
		t.Fatal(got, err)
	}
	release(t, lock(t, client, name))
	if time.Since(began) < 400*time.Millisecond {
		t.Fatal("it was granted again too early")
	}
}

func TestBadOptionsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	client := open(t, devcluster.Address(), "a")
	for option, want := range map[string]struct {
		options []tenure.LockOption
		reason  string
	}{
		"take without slots": {[]tenure.LockOption{tenure.Take(2)}, "INVALID_FIELD"},
		"take none":          {[]tenure.LockOption{tenure.Slots(2), tenure.Take(0)}, "INVALID_FIELD"},
		"priority":           {[]tenure.LockOption{tenure.Priority(10)}, "INVALID_FIELD"},
		"group":              {[]tenure.LockOption{tenure.Supersede("")}, "INVALID_NAME"},
		"min hold":           {[]tenure.LockOption{tenure.MinHold(-1)}, "INVALID_FIELD"},
		"progress":           {[]tenure.LockOption{tenure.ProgressWithin(-1)}, "INVALID_FIELD"},
	} {
		_, err := client.Lock(context.Background(), "bad", want.options...)
		if !errors.As(err, new(*tenure.InvalidError)) || reason(err) != want.reason {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func TestUpgradeAndDowngrade(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, name := context.Background(), deploy(t)
	guard, other := lock(t, a, name, tenure.Shared()), lock(t, b, name, tenure.Shared())
	token := guard.Token()
	if err := guard.Upgrade(ctx, tenure.NoWait()); !errors.Is(err, tenure.ErrHeld) {
		t.Fatal(err)
	}
	if err := guard.Upgrade(ctx, tenure.Wait(200*time.Millisecond)); !errors.Is(err, tenure.ErrWaitTimeout) {
		t.Fatal(err)
	}
	// A context that ends leaves the queue, and the hold stays as it was.
	soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := guard.Upgrade(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := guard.Check(); err != nil || guard.Token() != token || !waiting(t, a, name, 0)() {
		t.Fatal("the upgrade left something behind", err)
	}
	done := make(chan error, 1)
	go func() { done <- guard.Upgrade(ctx) }()
	eventually(t, "the upgrade waits", waiting(t, a, name, 1))
	if err := other.Upgrade(ctx); reason(err) != "DEADLOCK" {
		t.Fatal(err)
	}
	release(t, other)
	if err := <-done; err != nil || guard.Token() <= token {
		t.Fatal(err, guard.Token())
	}
	if err := guard.Check(); err != nil {
		t.Fatal(err)
	}
	if err := guard.Downgrade(ctx); err != nil {
		t.Fatal(err)
	}
	release(t, lock(t, b, name, tenure.Shared()))
	release(t, guard)
}

func TestHandOn(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, name := context.Background(), deploy(t)
	lease, err := b.Lease(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	guard := lock(t, a, name)
	if _, err := guard.HandOn(ctx, lease.ID()); reason(err) != "NOT_WAITING" || guard.Check() != nil {
		t.Fatal(err, guard.Check())
	}
	got := make(chan tenure.Token, 1)
	go func() {
		if received, err := lease.Lock(ctx, name); err == nil {
			got <- received.Token()
			_ = received.Release(ctx)
		}
	}()
	eventually(t, "the receiver waits", waiting(t, a, name, 1))
	token, err := guard.HandOn(ctx, lease.ID())
	if err != nil {
		t.Fatal(err)
	}
	if received := <-got; received != token {
		t.Fatal(received, token)
	}
	if err := guard.Check(); !errors.Is(err, &tenure.LostError{Cause: tenure.CauseReleased}) {
		t.Fatal(err)
	}
	if err := guard.Release(ctx); err != nil {
		t.Fatal(err)
	}
	both, err := a.LockAll(ctx, []string{name + "1", name + "2"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := both.HandOn(ctx, lease.ID()); reason(err) != "SEVERAL_LOCKS" {
		t.Fatal(err)
	}
	release(t, both)
}

func TestAHolderWithoutProgressLosesTheLock(t *testing.T) {
	client := open(t, devcluster.Address(), "a")
	ctx, name := context.Background(), deploy(t)
	guard := lock(t, client, name, tenure.TTL(2*time.Second), tenure.ProgressWithin(3*time.Second))
	left, promised, err := guard.Progress(ctx, 1)
	if err != nil || !promised || left <= 0 {
		t.Fatal(left, promised, err)
	}
	if err := guard.Lost(ctx); !errors.Is(err, &tenure.LostError{Cause: tenure.CauseNoProgress}) {
		t.Fatal(err)
	}
	_ = guard.Release(ctx)
	plain := lock(t, client, name+"/plain")
	if _, promised, err := plain.Progress(ctx, 1); promised || err != nil {
		t.Fatal(promised, err)
	}
	release(t, plain)
}

func TestResizeAndDrain(t *testing.T) {
	address := devcluster.Address()
	a, b := open(t, address, "a"), open(t, address, "b")
	ctx, name := context.Background(), deploy(t)
	one := lock(t, a, name, tenure.Slots(1))
	if err := a.Resize(ctx, name, 2); err != nil {
		t.Fatal(err)
	}
	two := lock(t, b, name, tenure.Slots(1))
	both := acquiring(b, name, tenure.Slots(1), tenure.Take(2))
	eventually(t, "it waits", waiting(t, a, name, 1))
	if err := a.Resize(ctx, name, 1); err != nil {
		t.Fatal(err)
	}
	if err := <-both; reason(err) != "INVALID_SLOTS" {
		t.Fatal(err)
	}
	release(t, two)
	if err := a.ResizeByRequests(ctx, name); err != nil {
		t.Fatal(err)
	}
	if err := a.Resize(ctx, name, 0); reason(err) != "INVALID_SLOTS" {
		t.Fatal(err)
	}
	if err := b.Drain(ctx, t.Name(), "new disks"); err != nil {
		t.Fatal(err)
	}
	drains, err := b.Drains(ctx)
	if err != nil || len(drains) != 1 || drains[0].Holders != 1 || drains[0].Reason != "new disks" {
		t.Fatal(drains, err)
	}
	if _, err := b.Lock(ctx, name+"/other", tenure.NoWait()); reason(err) != "DRAINING" {
		t.Fatal(err)
	}
	release(t, one)
	for _, want := range []bool{true, false} {
		if existed, err := b.Undrain(ctx, t.Name()); err != nil || existed != want {
			t.Fatal(existed, err)
		}
	}
}
