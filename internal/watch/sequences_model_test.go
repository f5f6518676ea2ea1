package watch_test

import (
	"slices"
	"strings"
	"time"
)

// modelCard is one card as a sequence has made it, and what a watcher that is right knows of it. It is written down as docs/health.md
// says it, from the card's side, and knows nothing of how lpuctl finds it out.
type modelCard struct {
	// What is.
	device                      uint64 // inode of its directory; 0: it is not on the bus
	bound, mute, disabled       bool
	power                       string // "", "lost" or "asleep"
	lanes                       int
	offline, firewall, hot, bad bool
	user                        time.Duration // when the process that uses it began; 0: nobody uses it

	fatal, nonFatal, correctable, ecc modelCounter

	// What was noticed when it was looked at.
	known      uint64 // device
	off        bool   // that it was reset behind its driver
	driverless bool
	told, kept modelTold // kept: at the latest look, which is what outlives the watcher

	// Its state when all had settled last.
	healthy bool
	changed bool // since then
	unsure  bool // it was looked at since it changed, and not for long enough
}

// modelTold is what events told.
type modelTold struct {
	recovering, failed, revived bool
	recovered, rebound          time.Duration // when; 0: not
	perhaps                     time.Duration // when it was told while the health had not settled: it is rebound, or not
}

// modelCounter is a counter of errors.
type modelCounter struct {
	value, last, grown uint64
	known              bool
	at                 time.Duration // when it grew
}

const (
	modelQuiet = 10 * time.Minute
	modelLanes = 16 // of card and slot
)

// look reads the counter. More than limit is a finding.
func (c *modelCounter) look(now time.Duration) {
	if c.at > 0 && now-c.at >= modelQuiet {
		c.grown, c.at = 0, 0
	}
	if c.known && c.value > c.last {
		c.grown, c.at = c.grown+c.value-c.last, now
	}
	c.last, c.known = c.value, true
}

func (c *modelCounter) shows(limit uint64, now time.Duration) bool {
	return c.grown > limit && now-c.at < modelQuiet
}

// tell takes an event into account.
func (c *modelCard) tell(what string, now time.Duration) {
	c.off = false // what was known of the configuration space may have changed
	switch what {
	case "BEGIN_RECOVERY":
		c.told.recovering = true
	case "SUCCESSFUL_RECOVERY":
		c.told.recovering, c.told.recovered = false, now
	case "FAILED_RECOVERY":
		c.told.recovering, c.told.failed = false, true
	case "bind", "add":
		c.told.recovering, c.told.failed, c.told.revived = false, false, true
		c.rebound(now)
	case "unbind", "remove", "node":
		c.rebound(now)
	}
	c.changed = true
}

// rebound: who used a healthy card may have lost it.
func (c *modelCard) rebound(now time.Duration) {
	switch {
	case c.unsure:
		c.told.perhaps = now
	case c.healthy:
		c.told.rebound, c.told.perhaps = now, 0
	}
}

func (c *modelCard) asleep() bool { return c.power == "asleep" }

// answers tells whether the driver can ask the card.
func (c *modelCard) answers() bool { return c.bound && !c.mute && c.power == "" && !c.offline }

// look is what a watcher notices that has looked since began, which is long enough to read everything.
func (c *modelCard) look(began, now time.Duration) {
	defer func() { c.kept = c.told }()
	for _, at := range []*time.Duration{&c.told.recovered, &c.told.rebound, &c.told.perhaps} {
		if now-*at >= modelQuiet {
			*at = 0
		}
	}
	if c.device == 0 {
		return
	}
	if c.known != c.device {
		c.replaced(began)
	}
	if c.bound && c.driverless {
		c.told.recovering, c.told.failed, c.told.revived = false, false, true
	}
	c.driverless = !c.bound
	if c.mute && !c.asleep() || c.bound && c.power == "" {
		c.told.revived = false
	}
	for _, at := range []*time.Duration{&c.told.rebound, &c.told.perhaps} {
		if c.bound && (c.user == 0 || c.user >= *at) { // who used it before is gone
			*at = 0
		}
	}
	if !c.mute && !c.asleep() {
		c.fatal.look(now)
		c.nonFatal.look(now)
		c.correctable.look(now)
		if c.bound && c.power == "" {
			c.off = c.disabled
		}
	}
	if c.answers() {
		c.ecc.look(now)
	}
}

// replaced: another device has come in its place. Of the one before only its users are remembered.
func (c *modelCard) replaced(now time.Duration) {
	first := c.known == 0
	told := modelTold{rebound: c.told.rebound, perhaps: c.told.perhaps}
	c.known, c.off, c.driverless, c.told = c.device, false, false, told
	for _, counter := range []*modelCounter{&c.fatal, &c.nonFatal, &c.correctable, &c.ecc} {
		*counter = modelCounter{value: counter.value}
	}
	if !first {
		c.rebound(now)
	}
}

// reasons are the ids of what is wrong when all has settled, in the order of the alphabet, and whether the card is healthy.
func (c *modelCard) reasons(now time.Duration) (ids string, healthy bool) {
	var errors, warnings []string
	add := func(list *[]string, is bool, id string) {
		if is {
			*list = append(*list, id)
		}
	}
	here := c.device != 0
	reads := here && !c.asleep() && !c.mute
	lost := here && c.bound && c.power == "lost"
	add(&errors, !here, "gone")
	add(&errors, here && !c.bound, "no-driver")
	add(&errors, here && c.mute && !c.asleep() && !lost, "no-answer")
	add(&errors, lost && !c.told.revived, "power-lost")
	add(&errors, reads && c.bound && c.off && !c.told.recovering, "reset-behind-driver")
	add(&errors, here && c.bound && !c.mute && c.power == "" && c.offline, "offline")
	add(&errors, here && c.answers() && c.bad, "bad-state")
	add(&errors, here && c.answers() && c.firewall, "firewall")
	add(&errors, c.fatal.shows(0, now), "aer-fatal")
	add(&errors, c.ecc.shows(0, now), "ecc-uncorrectable")
	add(&errors, c.told.recovering, "in-recovery")
	add(&errors, c.told.failed, "recovery-failed")
	add(&warnings, here && c.asleep(), "asleep")
	add(&warnings, here && c.answers() && c.hot, "hot")
	add(&warnings, reads && c.lanes < modelLanes, "link-degraded")
	add(&warnings, c.nonFatal.shows(0, now) || reads && c.nonFatal.value > 0, "aer-nonfatal")
	add(&warnings, !c.fatal.shows(0, now) && reads && c.fatal.value > 0, "aer-fatal")
	add(&warnings, !c.ecc.shows(0, now) && here && c.answers() && c.ecc.value > 0, "ecc-uncorrectable")
	add(&warnings, c.correctable.shows(100, now), "aer-correctable")
	add(&warnings, c.told.recovered > 0, "recovered")
	add(&warnings, c.told.rebound > 0, "rebound")
	all := slices.Concat(errors, warnings)
	slices.Sort(all)
	return strings.Join(all, " "), len(errors) == 0
}
