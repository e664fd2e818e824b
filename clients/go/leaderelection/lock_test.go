// Tests real electors of client-go on a real member.

package leaderelection_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
	"github.com/tenure-lock/tenure/clients/go/leaderelection"
	kube "k8s.io/client-go/tools/leaderelection"
)

const renewDeadline = 2 * time.Second

func TestMain(m *testing.M) { devcluster.Main(m) }

func lock(t *testing.T, address, name, identity string) *leaderelection.Lock {
	t.Helper()
	client, err := tenure.Open(context.Background(), tenure.Config{Addresses: []string{address}, Name: identity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// The electors that were cut off leave their leadership behind.
		_ = client.Close(ctx)
	})
	made, err := leaderelection.New(leaderelection.Config{
		Client: client, Name: name, Identity: identity, RenewDeadline: renewDeadline,
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// run runs an elector. Its leadership is counted while it lasts.
func run(t *testing.T, ctx context.Context, lock *leaderelection.Lock, leading *atomic.Int32, began, ended chan<- time.Time) {
	t.Helper()
	elector, err := kube.NewLeaderElector(kube.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 3 * time.Second, RenewDeadline: renewDeadline, RetryPeriod: 200 * time.Millisecond,
		ReleaseOnCancel: true, Name: "test",
		Callbacks: kube.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if leading.Add(1) != 1 {
					t.Error("two electors lead at once")
				}
				began <- time.Now()
			},
			OnStoppedLeading: func() {
				leading.Add(-1)
				ended <- time.Now()
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go elector.Run(ctx)
}

func TestAnElectorThatIsCutOffStopsBeforeTheNextOneLeads(t *testing.T) {
	t.Parallel()
	proxy := devcluster.NewProxy(t, devcluster.Address())
	first, second := lock(t, proxy.Address(), t.Name(), "first"), lock(t, devcluster.Address(), t.Name(), "second")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var leading atomic.Int32
	began, ended := make(chan time.Time, 2), make(chan time.Time, 4)
	run(t, ctx, first, &leading, began, ended)
	<-began
	before, ok := first.Token()
	if !ok {
		t.Fatal("a leader has a token")
	}
	run(t, ctx, second, &leading, began, ended)
	proxy.Refuse()
	stopped := <-ended
	if started := <-began; !started.After(stopped) {
		t.Fatal("the second led before the first had stopped", stopped.Sub(started))
	}
	if after, ok := second.Token(); !ok || after <= before {
		t.Fatal("tokens increase", before, after)
	}
}

func TestAnElectorThatEndsHandsOver(t *testing.T) {
	t.Parallel()
	first, second := lock(t, devcluster.Address(), t.Name(), "first"), lock(t, devcluster.Address(), t.Name(), "second")
	var leading atomic.Int32
	began, ended := make(chan time.Time, 2), make(chan time.Time, 4)
	ending, end := context.WithCancel(context.Background())
	run(t, ending, first, &leading, began, ended)
	<-began
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run(t, ctx, second, &leading, began, ended)
	record, _, err := second.Get(ctx)
	if err != nil || record.HolderIdentity != "first" {
		t.Fatal(record, err)
	}
	end()
	<-ended
	select {
	case <-began:
	case <-time.After(10 * time.Second):
		t.Fatal("the lock was not handed over")
	}
	if _, leads := first.Token(); leads {
		t.Fatal("it resigned")
	}
}
