package certify

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/hyperaccel/lpuctl/internal/versions"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

// driverChecks are HW-13 to HW-30: what the driver says of a card.
func driverChecks() []Check {
	return []Check{
		{"HW-13", "While a card is being reset, its dev_offline is 1.",
			"a look while xbutil reset runs (idle); to see it 1 once is not enough, because the file may go after that", offlineInReset},
		{"HW-14", "A reset is over within 30 s, and a card reads as all ones for less than 5 s of it.",
			"time xbutil reset --device ADDRESS (idle), and the same with hyperdex-reset", nil},
		{"HW-15", "ready is 0x1 while the management function's driver runs and answers, and 0x0 when not.",
			"rmmod xclmgmt (idle), and the same again", readyWithManagement},
		{"HW-16", "device_bad_state is 1 when the scheduler of commands has lost the card; XRT 2.16 brought it.",
			"XRT 2.16 or later; that it becomes 1 shows only with a card that is lost", badState},
		{"HW-17", "When ready is 1, all sensors of a card are read in less than a second.",
			"a card that is ready; that reads wait when it is not: time cat of a sensor after rmmod xclmgmt (idle)", sensorsInTime},
		{"HW-18", "The driver's parts are in rom.u.N, xmc.u.N and firewall.u.N, and N changes with a reset.",
			"another look after xbutil reset (idle)", parts},
		{"HW-19", "rom.u.N/VBNV is the name of the shell; of a factory image it has recovery or golden in it, or the file recovery is 1.",
			needsDriver, shellName},
		{"HW-20", "A card that runs its factory image may show its management function alone.",
			"a card that may be flashed: xbmgmt program --revert-to-golden (idle), and a cold start", goldenAlone},
		{"HW-21", "xclbinuuid is zeros or nothing without a bitstream; with one and memory in order mig_calibration is not 0.",
			"a look while a model runs", calibration},
		{"HW-22", "firewall.u.N/status is 0 as long as no firewall has tripped.", needsDriver, firewalls},
		{"HW-23", "mig.u.N/ecc_ue_cnt counts errors that the memory could not correct.",
			"a look while a model runs; that it counts shows only with such an error", memoryErrors},
		{"HW-24", "hwmon has temperatures with labels FPGA TEMP and HBM TEMP, and their limits in tempN_crit.",
			"a card that is ready; compare HBM TEMP with hyperdex-smi", temperatures},
		{"HW-25", "hwmon/hwmonN/power1_input is the power of the card in microwatts.", "a card that is ready; compare with hyperdex-smi", power},
		{"HW-26", "host_mem_size is 0 after a boot until host-memory-access has run, and HyperDex needs it.",
			"a look after a boot before host-memory-access, one after it, and one while a model runs", hostMemory},
		{"HW-27", "xmc.u.N/serial_num is the serial number of the card, for any user, and differs from card to card.",
			"two cards that are ready", serials},
		{"HW-28", "A read of the file error of the management function clears it, and lpuctl reads no such file.",
			"that a read clears it shows only with an error", noErrorRead},
		{"HW-29", "An LPU has 16 GiB of memory.", "hyperdex-smi with a bitstream that is loaded", nil},
		{"HW-30", "A card that is dead has current_link_width 63.", "a card that is dead: there is no harmless way", allOnes},
	}
}

func offlineInReset(f *Facts) answer {
	var t tally
	for _, fn := range f.driven() {
		if text, read := f.text(fn, "dev_offline"); read && text != "0" {
			t.note(f.shown(fn, "dev_offline"), text)
		}
		if fn.names["user_pf"] && !fn.names["dev_offline"] {
			t.see(false, f.shown(fn, "dev_offline"), none+", and user_pf is: the driver has taken its attributes away")
		}
	}
	return t.answer()
}

// readyWithManagement decides by what the driver of the management function must do to
// ready. If that runs and ready is 0, the card may not answer it.
func readyWithManagement(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		text, _ := f.text(fn, "ready")
		ready, err := strconv.ParseUint(text, 0, 64)
		m := f.at(fn.Sibling(0))
		switch value := fmt.Sprintf("%q", text); {
		case err != nil:
			t.see(false, f.shown(fn, "ready"), orNone(text))
		case m == nil:
			t.note(f.shown(fn, "ready"), value+", and the management function is not on this bus")
		case m.driver == "xclmgmt" && ready == 0:
			t.note(f.shown(fn, "ready"), value+" with xclmgmt bound")
		case m.driver == "xclmgmt":
			t.see(true, f.shown(fn, "ready"), value+" with xclmgmt bound")
		default:
			t.see(ready == 0, f.shown(fn, "ready"), value+" without xclmgmt")
		}
	}
	return t.answer()
}

// badState expects the file of a driver that is new enough.
func badState(f *Facts) answer {
	var t tally
	version, _ := f.tree.Line(xoclModule + "/version")
	number, _, _ := strings.Cut(version, ",")
	release := versions.Parse(number)
	for _, fn := range f.up() {
		text, read := f.text(fn, "device_bad_state")
		switch {
		case read:
			t.see(text == "0" || text == "1", f.shown(fn, "device_bad_state"), text)
		case release.Known() && !release.Before("2.16"):
			t.see(false, f.shown(fn, "device_bad_state"), none+", with XRT "+release.Text)
		default:
			t.note(f.shown(fn, "device_bad_state"), none+", with XRT "+release.Text)
		}
	}
	return t.answer()
}

func sensorsInTime(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		l := f.lpu(fn.Address)
		text, _ := f.text(fn, "ready")
		if ready, err := strconv.ParseUint(text, 0, 64); l == nil || err != nil || ready == 0 {
			continue
		}
		switch {
		case l.Reasons.Has(finding.ReadStalled):
			t.see(false, f.shown(fn, "hwmon"), "a read of the card has not ended in time")
		case l.Reading.Sensors != nil && len(l.Temperatures) > 0:
			t.see(true, f.shown(fn, "hwmon"), fmt.Sprintf("%d temperatures, all read in time", len(l.Temperatures)))
		}
	}
	return t.answer()
}

func parts(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		for _, part := range []string{"rom.u.", "xmc.u.", "firewall.u."} {
			t.see(fn.has(part), f.shown(fn, part+"*"), map[bool]string{true: "there", false: none}[fn.has(part)])
		}
	}
	return t.answer()
}

func shellName(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		for _, name := range f.below(fn, "rom.u.", "VBNV") {
			t.see(strings.Contains(name.text, "_u55c_"), f.tree.Shown(name.path), orNone(name.text))
		}
		if fn.has("rom.u.") && len(f.below(fn, "rom.u.", "VBNV")) == 0 {
			t.see(false, f.shown(fn, "rom.u.*/VBNV"), none)
		}
	}
	return t.answer()
}

func goldenAlone(f *Facts) answer {
	var t tally
	for _, fn := range f.functions {
		alone := fn.vendor == xilinx && fn.device == managingDevice && f.at(fn.Sibling(1)) == nil
		if recovery, read := f.text(fn, "recovery"); alone && read && recovery == "1" {
			t.see(true, f.shown(fn, "recovery"), "1, and the card has no user function")
		}
	}
	return t.answer()
}

func calibration(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		loaded, read := f.text(fn, "xclbinuuid")
		calibrated, _ := f.text(fn, "mig_calibration")
		n, err := strconv.ParseUint(calibrated, 0, 64)
		switch {
		case !fn.names["xclbinuuid"]:
			t.see(false, f.shown(fn, "xclbinuuid"), none)
		case !read || strings.Trim(loaded, "0-\n") == "":
			t.note(f.shown(fn, "xclbinuuid"), "no bitstream")
		default:
			t.see(err == nil && n != 0, f.shown(fn, "mig_calibration"), orNone(calibrated)+" with a bitstream")
		}
	}
	return t.answer()
}

// firewalls counts on it that a card whose firewall has tripped goes offline within two
// seconds: a card that is up has none.
func firewalls(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		status := f.below(fn, "firewall.u.", "status")
		for _, s := range status {
			t.see(s.text == "0", f.tree.Shown(s.path), s.text+", and the card is not offline")
		}
		if l := f.lpu(fn.Address); len(status) == 0 && fn.has("firewall.u.") && l != nil && l.Reading.Sensors != nil {
			t.see(false, f.shown(fn, "firewall.u.*/status"), none)
		}
	}
	return t.answer()
}

func memoryErrors(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		counters := f.below(fn, "mig.u.", "ecc_ue_cnt")
		for _, c := range counters {
			t.see(true, f.tree.Shown(c.path), c.text)
		}
		loaded, _ := f.text(fn, "xclbinuuid")
		switch {
		case len(counters) > 0:
		case fn.has("mig.hbm.u."):
			t.see(false, f.shown(fn, "mig.hbm.u.*"), "there, and no mig.u.*/ecc_ue_cnt")
		case strings.Trim(loaded, "0-\n") != "":
			t.see(false, f.shown(fn, "mig.u.*/ecc_ue_cnt"), none+", with a bitstream")
		default:
			t.note(f.shown(fn, "mig.u.*/ecc_ue_cnt"), none+", without a bitstream")
		}
	}
	return t.answer()
}

func temperatures(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		l := f.lpu(fn.Address)
		if l == nil || l.Reading.Sensors == nil {
			continue
		}
		var labels []string
		for _, now := range l.Temperatures {
			labels = append(labels, now.Label)
			if now.Critical == 0 {
				t.see(false, f.shown(fn, "hwmon"), now.Label+" has no tempN_crit")
			}
		}
		both := slices.Contains(labels, "FPGA TEMP") && slices.Contains(labels, "HBM TEMP")
		t.see(both, f.shown(fn, "hwmon"), orNone(strings.Join(labels, ", ")))
	}
	return t.answer()
}

// The power that a card of a U55C's size can take, in watts. Its data sheet has 150 at
// most.
const (
	wattsLeast = 1
	wattsMost  = 225
)

func power(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		l := f.lpu(fn.Address)
		switch {
		case l == nil || l.Reading.Sensors == nil:
		case l.Watts == nil:
			t.see(false, f.shown(fn, "hwmon/*/power1_input"), none)
		default:
			t.see(*l.Watts >= wattsLeast && *l.Watts <= wattsMost, f.shown(fn, "hwmon/*/power1_input"),
				fmt.Sprintf("%.3f W if it is microwatts", *l.Watts))
		}
	}
	return t.answer()
}

// hostMemory can only refute: what the file was after the boot is not known.
func hostMemory(f *Facts) answer {
	var t tally
	for _, fn := range f.up() {
		text, read := f.text(fn, "host_mem_size")
		l := f.lpu(fn.Address)
		switch {
		case !read && !fn.names["host_mem_size"]:
			t.see(false, f.shown(fn, "host_mem_size"), none)
		case read && text == "0" && l != nil && len(l.Users) > 0:
			t.see(false, f.shown(fn, "host_mem_size"), "0, and "+l.Users[0].String()+" has the LPU open")
		case read:
			t.note(f.shown(fn, "host_mem_size"), text)
		}
	}
	return t.answer()
}

// serials names no serial number: a certificate may be sent to others.
func serials(f *Facts) answer {
	var t tally
	first := map[string]string{}
	for _, fn := range f.up() {
		for _, serial := range f.below(fn, "xmc.u.", "serial_num") {
			shown := f.tree.Shown(serial.path)
			mode, _ := f.mode(serial.path)
			switch other := first[serial.text]; {
			case serial.text == "":
				t.see(false, shown, "empty")
			case other != "":
				t.see(false, shown, "the same as in "+other)
			case mode&0o004 == 0:
				t.see(false, shown, fmt.Sprintf("mode %04o", mode))
			default:
				t.see(true, shown, fmt.Sprintf("%d characters, not shown", len(serial.text)))
			}
			first[serial.text] = shown
		}
	}
	if len(t.bad) == 0 && len(t.good) == 1 {
		return answer{evidence: t.good} // whether another card has another number is not known
	}
	return t.answer()
}

func noErrorRead(f *Facts) answer {
	var t tally
	for _, p := range slices.Sorted(maps.Keys(f.read)) {
		if path.Base(p) == "error" {
			t.see(false, f.tree.Shown(p), "lpuctl has read it")
		}
	}
	if len(t.bad) == 0 && len(f.cards()) > 0 {
		t.see(true, f.tree.Shown("sys/bus/pci/devices"), fmt.Sprintf("%d files read, and none of this name", len(f.read)))
	}
	return t.answer()
}

// allOnes compares with the configuration space where the scan has read that.
func allOnes(f *Facts) answer {
	var t tally
	for _, fn := range f.cards() {
		width, _ := f.text(fn, "current_link_width")
		config := f.read[fn.Dir()+"/config"]
		switch {
		case width == "63":
			t.see(true, f.shown(fn, "current_link_width"), width)
		case strings.HasPrefix(config, "\xff\xff\xff\xff"):
			t.see(false, f.shown(fn, "current_link_width"), orNone(width)+", and config begins with all ones")
		}
	}
	return t.answer()
}
