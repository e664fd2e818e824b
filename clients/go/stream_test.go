// Tests elections, keys and watches against a real member.

package tenure_test

import (
	"context"
	"errors"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
)

func TestAnElectionHasOneLeaderAndObserversSeeEachChange(t *testing.T) {
	t.Parallel()
	proxy := devcluster.NewProxy(t, devcluster.Address())
	ana, ben, seer := open(t, devcluster.Address(), "ana"), open(t, devcluster.Address(), "ben"), open(t, proxy.Address(), "seer")
	name := t.Name() + "/billing"
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	seen := make(chan string)
	go func() {
		for leader, err := range seer.Election(name).Observe(ctx) {
			switch {
			case err != nil:
				return
			case leader == nil:
				seen <- "vacant"
			default:
				seen <- leader.Client + " " + string(leader.Value)
			}
		}
	}()
	expect := func(want string) {
		t.Helper()
		select {
		case found := <-seen:
			if found != want {
				t.Fatalf("saw %q, not %q", found, want)
			}
		case <-ctx.Done():
			t.Fatalf("did not see %q", want)
		}
	}
	expect("vacant")
	lead, err := ana.Election(name).Campaign(ctx, []byte("10.0.0.5:9000"))
	if err != nil {
		t.Fatal(err)
	}
	expect("ana 10.0.0.5:9000")
	if err := lead.Proclaim(ctx, []byte("10.0.0.5:9001")); err != nil {
		t.Fatal(err)
	}
	expect("ana 10.0.0.5:9001")
	proxy.Cut()
	done, resign := make(chan error), make(chan struct{})
	go func() {
		done <- ben.Election(name).Lead(ctx, []byte("b"), func(ctx context.Context, lead *tenure.Leadership) error {
			leader, err := ana.Election(name).Leader(ctx)
			if err != nil || leader == nil || leader.Client != "ben" || leader.Token != lead.Token() {
				t.Error(leader, err)
			}
			<-resign
			return nil
		})
	}()
	eventually(t, "ben waits", waiting(t, ana, name, 1))
	if err := lead.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	expect("ben b")
	close(resign)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	expect("vacant")
}

func TestKeysAndTheirConditions(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ben := open(t, address, "ana"), open(t, address, "ben")
	ctx, key := context.Background(), t.Name()+"/config"
	refused := func(err error, reason string) {
		t.Helper()
		if !errors.Is(err, &tenure.RefusedError{Reason: reason}) {
			t.Fatalf("%v is not %s", err, reason)
		}
	}
	if _, found, err := ana.Get(ctx, key); found || err != nil {
		t.Fatal(found, err)
	}
	if version, err := ana.Put(ctx, key, []byte("v1"), tenure.IfAbsent()); version != 1 || err != nil {
		t.Fatal(version, err)
	}
	_, err := ana.Put(ctx, key, []byte("v2"), tenure.IfAbsent())
	refused(err, "COMPARE_FAILED")
	if version, err := ana.Put(ctx, key, []byte{0xff, 0}, tenure.IfValue([]byte("v1"))); version != 2 || err != nil {
		t.Fatal(version, err)
	}
	value, found, err := ben.Get(ctx, key)
	if err != nil || !found || string(value.Value) != "\xff\x00" || value.Version != 2 {
		t.Fatal(value, err)
	}
	if _, err := ben.Put(ctx, key, nil, tenure.IfModified(value.Modified)); err != nil {
		t.Fatal(err)
	}
	_, err = ben.Put(ctx, key, nil, tenure.IfModified(value.Modified))
	refused(err, "COMPARE_FAILED")

	guard := lock(t, ana, deploy(t))
	if _, err := ana.Put(ctx, key, []byte("guarded"), tenure.GuardedBy(guard)); err != nil {
		t.Fatal(err)
	}
	release(t, guard)
	_, err = ana.Put(ctx, key, []byte("late"), tenure.GuardedBy(guard))
	refused(err, "GUARD_FAILED")

	lease, err := ana.Lease(ctx, ttl)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ana.Put(ctx, key+"/bound", []byte("here"), tenure.BoundTo(lease)); err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if _, found, err := ben.Get(ctx, key+"/bound"); found || err != nil {
		t.Fatal("the key ends with its lease", err)
	}
	if existed, err := ana.Delete(ctx, key); !existed || err != nil {
		t.Fatal(existed, err)
	}
	if existed, err := ana.Delete(ctx, key); existed || err != nil {
		t.Fatal(existed, err)
	}
}

// A watch tells each change once and in order, although its connection is cut all the time.
func TestAWatchTellsEachChangeOnceOverCuts(t *testing.T) {
	t.Parallel()
	proxy := devcluster.NewProxy(t, devcluster.Address())
	writer, watcher := open(t, devcluster.Address(), "writer"), open(t, proxy.Address(), "watcher")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	prefix := t.Name() + "/"
	watch, err := watcher.WatchPrefix(ctx, prefix, tenure.WithPrevious())
	if err != nil {
		t.Fatal(err)
	}
	const changes = 60
	go func() {
		for at := range changes {
			if _, err := writer.Put(ctx, prefix+"key", []byte{byte(at)}); err != nil {
				t.Error(err)
			}
			if at%6 == 0 {
				proxy.Cut()
			}
		}
	}()
	next, revision := 0, tenure.Revision(0)
	for batch, err := range watch.All() {
		if err != nil {
			t.Fatal(err)
		}
		if batch.Revision <= revision {
			t.Fatal("revisions increase", batch.Revision, revision)
		}
		revision = batch.Revision
		for _, event := range batch.Events {
			if event.Cause != "key_put" || event.Key != prefix+"key" || int(event.Value[0]) != next {
				t.Fatal(next, event)
			}
			if next > 0 && int(event.Previous[0]) != next-1 {
				t.Fatal(next, event.Previous)
			}
			next++
		}
		if next == changes {
			break
		}
	}
	if _, err := watch.Next(); err == nil {
		t.Fatal("a watch that was left is over")
	}
	again, err := watcher.Watch(ctx, prefix+"key", tenure.FromRevision(revision))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if batch, err := again.Next(); err != nil || batch.Revision != revision {
		t.Fatal(batch, err)
	}
}

func TestLocksAreShownListedAndExplained(t *testing.T) {
	t.Parallel()
	ana, ben := open(t, devcluster.Address(), "ana"), open(t, devcluster.Address(), "ben")
	ctx := context.Background()
	guard := lock(t, ana, deploy(t))
	waits, cancel := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = ben.Lock(waits, deploy(t))
	}()
	eventually(t, "ben waits", waiting(t, ana, deploy(t), 1))
	explained, err := ana.Explain(ctx, deploy(t))
	if err != nil || explained.Lock.Holders[0].Client != "ana" || len(explained.Waiters) != 1 || explained.Waiters[0].Client != "ben" {
		t.Fatal(explained, err)
	}
	count := 0
	for info, err := range ana.Locks(ctx, t.Name()+"/") {
		if err != nil || info.Lock != deploy(t) {
			t.Fatal(info, err)
		}
		count++
	}
	if count != 1 {
		t.Fatal(count)
	}
	if ticket, err := guard.Ticket(ctx); err != nil || len(ticket) < 50 {
		t.Fatal(ticket, err)
	}
	cancel()
	<-gone
	if err := ben.Revoke(ctx, guard.Lease(), "not needed"); err != nil {
		t.Fatal(err)
	}
	var lost *tenure.LostError
	if err := guard.Lost(ctx); !errors.As(err, &lost) || lost.Cause != tenure.CauseRevoked || lost.By != "ben" {
		t.Fatal(err)
	}
}
