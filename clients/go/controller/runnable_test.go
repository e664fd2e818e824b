// Tests a runnable in a real manager of controller-runtime, on a real member.

package controller_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	tenure "github.com/tenure-lock/tenure/clients/go"
	"github.com/tenure-lock/tenure/clients/go/controller"
	"github.com/tenure-lock/tenure/clients/go/internal/devcluster"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func TestMain(m *testing.M) { devcluster.Main(m) }

func open(t *testing.T, address, name string) *tenure.Client {
	t.Helper()
	config := tenure.Config{Addresses: []string{address}, Name: name, TTL: 4 * time.Second}
	client, err := tenure.Open(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// A client that was cut off leaves its leadership behind.
		_ = client.Close(ctx)
	})
	return client
}

// run starts a manager with one runnable. Nothing in it talks to Kubernetes.
func run(t *testing.T, ctx context.Context, runnable manager.Runnable) <-chan error {
	t.Helper()
	made, err := manager.New(&rest.Config{Host: "http://127.0.0.1:1"}, manager.Options{
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
		Metrics: metrics.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := made.Add(runnable); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- made.Start(ctx) }()
	return done
}

func TestWorkRunsInOneManagerAtATime(t *testing.T) {
	t.Parallel()
	proxy := devcluster.NewProxy(t, devcluster.Address())
	var leading atomic.Int32
	leads := make(chan string, 8)
	work := func(name string) controller.Work {
		return func(ctx context.Context, lead *tenure.Leadership) error {
			if leading.Add(1) != 1 {
				t.Error("two lead at once")
			}
			leads <- name
			<-ctx.Done()
			leading.Add(-1)
			return context.Cause(ctx)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cut := open(t, proxy.Address(), "cut").Election(t.Name())
	first := run(t, ctx, controller.New(cut, []byte("cut"), work("cut")))
	if name := <-leads; name != "cut" {
		t.Fatal(name)
	}
	other := open(t, devcluster.Address(), "other").Election(t.Name())
	second := run(t, ctx, controller.New(other, []byte("other"), work("other")))
	proxy.Refuse()
	if name := <-leads; name != "other" {
		t.Fatal(name)
	}
	// The one that was cut off campaigns again, and waits.
	proxy.Resume()
	cancel()
	for _, done := range []<-chan error{first, second} {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(15 * time.Second):
			t.Fatal("the manager did not stop")
		}
	}
}

func TestAnErrorOfTheWorkEndsTheManager(t *testing.T) {
	t.Parallel()
	own := errors.New("the work's own error")
	failing := controller.Running(manager.RunnableFunc(func(context.Context) error { return own }))
	election := open(t, devcluster.Address(), "ana").Election(t.Name())
	if err := <-run(t, context.Background(), controller.New(election, nil, failing)); !errors.Is(err, own) {
		t.Fatal(err)
	}
}
