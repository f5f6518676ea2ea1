// Package health judges what is read of LPUs. It knows no files: discovery hands in
// readings, serve hands in events, and the clock is an argument. So every rule can be
// tried without a machine.
//
// A [Reading] is what was seen of one LPU at one moment. [Reading.Findings] is what it
// shows by itself. A [Judge] remembers readings and says what they mean together:
// hysteresis both ways, a grace for what may pass, growth of counters, and what stays
// until the driver is bound again.
//
// docs/health.md lists every signal for users; a test holds it against [Signals].
package health
