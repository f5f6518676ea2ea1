package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/health"
)

// healthName is the name of the command whose exit codes depend on its format.
const healthName = "health"

// Exit codes of health -o npd, as node-problem-detector takes them: the condition is
// False, True, and Unknown for any other.
const (
	npdSound   = 0
	npdFaulty  = 1
	npdUnknown = 2
)

// npdWidth is the length of the line in bytes, all of which are ASCII:
// node-problem-detector cuts bytes off, by default beyond these.
const npdWidth = 80

// errFaulty ends health -o npd where an LPU is unhealthy, which the line has said.
var errFaulty = errors.New("")

// healthForNPD prints the line for node-problem-detector about an inventory, or about the
// LPUs that are named.
func healthForNPD(a *app, inv *discovery.Inventory, words []string) error {
	if err := keepNamed(a.Config.CDI.Kind, inv, words); err != nil {
		return err
	}
	if len(inv.LPUs) == 0 {
		return cli.NoLPU(a.Root)
	}
	line, faulty := npdLine(inv.LPUs)
	if !faulty {
		// A function that cannot be distinguished from an LPU may be a faulty LPU.
		if err := inv.Undecided(); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(a.Out, line); err != nil {
		return err
	}
	if faulty {
		return errFaulty
	}
	return nil
}

// npdLine is the line about LPUs, and whether one of them is unhealthy that is not
// cordoned. The worst is the first of those that are unhealthy or, if none is, of those
// that are unknown.
func npdLine(lpus []discovery.LPU) (line string, faulty bool) {
	count, worst, cordoned := map[health.State]int{}, map[health.State]*discovery.LPU{}, 0
	for i := range lpus {
		l := &lpus[i]
		if l.Cordoned != nil {
			cordoned++
			continue
		}
		count[l.Health]++
		if worst[l.Health] == nil {
			worst[l.Health] = l
		}
	}
	for _, state := range []health.State{health.Unhealthy, health.Unknown} {
		if l := worst[state]; l != nil {
			return npdLineOf(l, state, count[state]-1), state == health.Unhealthy
		}
	}
	line = cli.Plural(count[health.Healthy], "LPU") + " healthy"
	if cordoned > 0 {
		line += fmt.Sprintf(", %d cordoned", cordoned)
	}
	return line, false
}

// npdLineOf is the line about the worst LPU: "lpu3 0000:46:00.1 no-driver: no driver is
// bound to it (it needs xocl) (2 more)".
func npdLineOf(l *discovery.LPU, state health.State, more int) string {
	what, text := string(state), ""
	if len(l.Reasons) > 0 {
		why := worst(l.Reasons)
		what, text = string(why.ID), ": "+npdText(why)
	}
	end := ""
	if more > 0 {
		end = fmt.Sprintf(" (%d more)", more)
	}
	if state == health.Unknown {
		end = " (may pass)" + end
	}
	return shorten(fmt.Sprintf("%s %s %s%s", l.Name, l.Address, what, text), npdWidth-len(end)) + end
}

// npdText says what a finding is about, the same as long as the finding is there:
// node-problem-detector takes another line for another condition, with an event of its
// own, and a message with a temperature or a count would be one at each reading. For such
// a message stands the first sentence of what the finding means.
func npdText(f finding.Finding) string {
	meaning := finding.RuleOf(f.ID).Meaning
	if meaning == "" || !strings.ContainsAny(f.Message, "0123456789") {
		return f.Message
	}
	sentence, _, _ := strings.Cut(meaning, ". ")
	return strings.TrimSuffix(sentence, ".")
}

// shorten makes one line of ASCII of a text, of at most so many bytes.
func shorten(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
	if len(text) > width {
		text = strings.TrimRight(text[:width-len("...")], " ") + "..."
	}
	return text
}

// isForNPD reports whether a command was to answer node-problem-detector. If its flags
// are wrong, the format may not have been read.
func isForNPD(cmd *cobra.Command, args []string, err error) bool {
	if cmd.Name() != healthName {
		return false
	}
	if chosen := cmd.Flags().Lookup("format").Value.String(); chosen == string(cli.FormatNPD) {
		return true
	}
	asked := slices.ContainsFunc(args, func(word string) bool { return strings.HasSuffix(word, string(cli.FormatNPD)) })
	return asked && cli.CodeOf(err) == cli.ExitUsage
}

// codeForNPD is the exit code of health -o npd. Of an error it prints the line, too.
func codeForNPD(out io.Writer, err error) int {
	switch {
	case err == nil:
		return npdSound
	case errors.Is(err, errFaulty):
		return npdFaulty
	}
	fmt.Fprintln(out, shorten("not known: "+err.Error(), npdWidth))
	return npdUnknown
}
