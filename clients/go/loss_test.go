// Tests the loss of locks, and requests whose answers are lost, behind a proxy that cuts.

package tenure_test

import (
	"context"
	"errors"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
	"github.com/tenure-lock/tenure/clients/go/internal/planted"
)

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

// A lock that is taken away passes on when its holder says that the work has stopped, and not before.
func TestAForcedLockPassesOnWhenTheWorkHasStopped(t *testing.T) {
	t.Parallel()
	address := devcluster.Address()
	ana, ops := open(t, address, "ana"), open(t, address, "ops@host")
	guard := lock(t, ana, deploy(t), tenure.TTL(20*time.Second))
	if _, err := ops.Force(context.Background(), deploy(t), guard.Token(), "stuck"); err != nil {
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
