package top

import (
	"time"

	"github.com/hyperaccel/lpuctl/pkg/pci"
)

// The history has ten minutes, in steps of as long as sensors are read.
const (
	historyStep  = 10 * time.Second
	historySteps = 60
)

// History is what the LPUs have shown in the last ten minutes.
type History struct {
	lpus map[pci.Address]*series
	step int64 // of the latest look, since the epoch
}

// series are the temperature and the power of one LPU, a value for each step, the latest
// last. A value is nil where nothing was known.
type series struct{ celsius, watts [historySteps]*float64 }

// Add adds a look. Of several in one step the highest value counts.
func (h *History) Add(look *Look) {
	step := look.At.Unix() / int64(historyStep/time.Second)
	if h.lpus == nil {
		h.lpus, h.step = map[pci.Address]*series{}, step
	}
	// A clock that was set back leaves no history.
	passed := step - h.step
	if passed < 0 {
		passed = historySteps
	}
	h.step = step
	for range min(passed, historySteps) {
		for _, s := range h.lpus {
			s.celsius, s.watts = shifted(s.celsius), shifted(s.watts)
		}
	}
	for i := range look.LPUs {
		l := &look.LPUs[i]
		s := h.lpus[l.Address]
		if s == nil {
			s = &series{}
			h.lpus[l.Address] = s
		}
		if t := l.Readings.Hottest(); t != nil {
			raise(&s.celsius[historySteps-1], t.Celsius)
		}
		if watts := l.Readings.Power(); watts != nil {
			raise(&s.watts[historySteps-1], *watts)
		}
	}
}

func shifted(values [historySteps]*float64) (next [historySteps]*float64) {
	copy(next[:], values[1:])
	return next
}

// raise makes a value at least as high as another one.
func raise(value **float64, to float64) {
	if *value == nil || **value < to {
		*value = &to
	}
}

// of returns the series of an LPU; an empty one if nothing is known.
func (h *History) of(a pci.Address) *series {
	if s := h.lpus[a]; s != nil {
		return s
	}
	return &series{}
}

// inColumns makes as many values of a series as there are columns, each the highest of
// its part.
func inColumns(values []*float64, columns int) []*float64 {
	shown := make([]*float64, columns)
	for i, v := range values {
		if v != nil {
			raise(&shown[i*columns/len(values)], *v)
		}
	}
	return shown
}

// span returns the lowest and the highest of some values; nil if there are none.
func span(values []*float64) (low, high *float64) {
	for _, v := range values {
		if v != nil && (low == nil || *v < *low) {
			low = v
		}
		if v != nil && (high == nil || *v > *high) {
			high = v
		}
	}
	return low, high
}
