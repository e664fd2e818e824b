// Tells everything that relies on a grant of its loss and its standing.

package tenure

import (
	"context"
	"slices"
	"sync"
)

// A lossSignal tells everything that relies on a grant of its loss, once.
type lossSignal struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu        sync.Mutex
	fired     bool
	onFire    []*context.CancelCauseFunc
	standings []chan Standing
	last      Standing
}

// newLossSignal returns a signal whose context has the values of another one, and ends with the loss only.
func newLossSignal(values context.Context) *lossSignal {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(values))
	return &lossSignal{ctx: ctx, cancel: cancel}
}

// fire tells the loss, and returns whether it is the first.
func (s *lossSignal) fire(lost *LostError) bool {
	s.mu.Lock()
	first := !s.fired
	s.fired = true
	also := s.onFire
	s.onFire = nil
	s.mu.Unlock()
	if first {
		s.cancel(lost)
		for _, cancel := range also {
			(*cancel)(lost)
		}
		s.stands(Lost)
	}
	return first
}

// also cancels another context with the loss, in the same goroutine and at the same time. The function that it returns
// ends that.
func (s *lossSignal) also(cancel context.CancelCauseFunc) (end func()) {
	s.mu.Lock()
	fired := s.fired
	it := &cancel
	if !fired {
		s.onFire = append(s.onFire, it)
	}
	s.mu.Unlock()
	if fired {
		cancel(context.Cause(s.ctx))
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.onFire = slices.DeleteFunc(s.onFire, func(other *context.CancelCauseFunc) bool { return other == it })
	}
}

func (s *lossSignal) isFired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fired
}

// subscribe returns a channel with the newest standing: older ones that were not read are replaced.
func (s *lossSignal) subscribe(now Standing) <-chan Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := make(chan Standing, 1)
	to <- now
	if s.standings == nil {
		s.last = now
	}
	if now != Lost {
		s.standings = append(s.standings, to)
	}
	return to
}

func (s *lossSignal) stands(standing Standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if standing == s.last || s.last == Lost {
		return
	}
	s.last = standing
	for _, to := range s.standings {
		select {
		case <-to:
		default:
		}
		to <- standing
	}
}
