// Reads CLOCK_BOOTTIME, and sets alarms by it: it goes on while the machine is suspended.

package tenure

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A machineClock reads the clocks of the machine.
type machineClock struct{}

func newMachineClock() *machineClock { return &machineClock{} }

// read reads both clocks.
func (*machineClock) read() clockReading {
	// The clock that stops in suspend is read first. In this order the measured difference is never too small.
	awake := clockMoment(unix.CLOCK_MONOTONIC)
	return clockReading{boot: clockMoment(unix.CLOCK_BOOTTIME), awake: awake}
}

func clockMoment(clock int32) moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		// Linux has had both clocks since 2.6.39. Without them no lease can be relied on.
		panic("tenure: cannot read the clock: " + err.Error())
	}
	return moment(ts.Nano() / 1_000)
}

// alarmMax is the latest moment to set an alarm to: some thirty years, well within what the kernel can count.
const alarmMax = moment(1_000_000_000_000_000)

// An alarm is a timer of CLOCK_BOOTTIME: after a suspend it fires at once, where a timer of the Go runtime would wait
// for the rest of its time.
type alarm struct {
	// mu keeps set from using the descriptor while close ends it.
	mu     sync.Mutex
	closed bool
	fd     int
	file   *os.File
}

func newAlarm(*machineClock) (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	// The descriptor does not block, so the runtime waits for it without a thread.
	return &alarm{fd: fd, file: os.NewFile(uintptr(fd), "tenure-alarm")}, nil
}

// set makes the alarm fire at this moment; one in the past fires at once.
func (a *alarm) set(at moment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	// All zeros would switch the timer off.
	at = min(max(at, 1), alarmMax)
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at) * 1_000)}
	if err := unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		panic("tenure: cannot set the alarm: " + err.Error())
	}
}

// wait blocks until the alarm fires. It returns false once the alarm is closed.
func (a *alarm) wait() bool {
	var count [8]byte
	_, err := a.file.Read(count[:])
	return err == nil
}

func (a *alarm) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		// It was only read, so nothing is lost if closing fails.
		_ = a.file.Close()
	}
}
