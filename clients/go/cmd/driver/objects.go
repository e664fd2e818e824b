// Keeps what commands have made, by the names that the runner gave.

package main

import (
	"fmt"
	"sync"

	tenure "github.com/tenure-lock/tenure/clients/go"
)

// A named is a set of values of one kind.
type named[T any] struct {
	kind string
	mu   sync.Mutex
	all  map[string]T
}

func newNamed[T any](kind string) *named[T] { return &named[T]{kind: kind, all: map[string]T{}} }

func (n *named[T]) put(name string, value T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all[name] = value
}

func (n *named[T]) get(name string) (T, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	value, ok := n.all[name]
	if !ok {
		return value, &tenure.InvalidError{Reason: "INVALID_FIELD", Message: fmt.Sprintf("no %s has the name %q", n.kind, name)}
	}
	return value, nil
}

// An owned is a value of one client.
type owned[T any] struct {
	handle string
	value  T
}

// takeOf takes away all values of a client.
func takeOf[T any](n *named[owned[T]], handle string) []T {
	n.mu.Lock()
	defer n.mu.Unlock()
	var taken []T
	for name, it := range n.all {
		if it.handle == handle {
			taken = append(taken, it.value)
			delete(n.all, name)
		}
	}
	return taken
}

type objects struct {
	clients *named[*tenure.Client]
	guards  *named[owned[*tenure.Guard]]
	leases  *named[owned[*tenure.Lease]]
	leaders *named[*tenure.Leadership]
	streams *streams
}

func newObjects() objects {
	return objects{
		clients: newNamed[*tenure.Client]("client"), guards: newNamed[owned[*tenure.Guard]]("guard"),
		leases: newNamed[owned[*tenure.Lease]]("lease"), leaders: newNamed[*tenure.Leadership]("leader"),
		streams: &streams{of: map[string]*sync.WaitGroup{}},
	}
}

// A streams knows which observations and watches of a client run.
type streams struct {
	mu sync.Mutex
	of map[string]*sync.WaitGroup
}

func (s *streams) group(handle string) *sync.WaitGroup {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[handle] == nil {
		s.of[handle] = &sync.WaitGroup{}
	}
	return s.of[handle]
}

// begin runs a stream of a client.
func (s *streams) begin(handle string, run func()) {
	group := s.group(handle)
	group.Add(1)
	go func() {
		defer group.Done()
		run()
	}()
}

// wait waits until all streams of a closed client have ended.
func (s *streams) wait(handle string) { s.group(handle).Wait() }
