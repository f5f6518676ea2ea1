package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/test/await"
	"github.com/hyperaccel/lpuctl/test/long"
)

// remedyScripts are the scripts that carry out remedies. For each id, "finds ID lpuctl ARGUMENTS" wants lpuctl to print the finding.
// Then the script does what the remedy says, and "gone" wants the same command not to print the finding any more:
//
//	carry      runs the commands of the remedy, exactly as they were printed
//	edit EXPR  edits the line that the finding names, with an expression of sed
//	anything else is for remedies in words; the script should match these with stderr
//
// LPUCTL_ROOT names the node, so that a command that was printed needs no --root.
const remedyScripts = "testdata/remedy"

// TestRemedies carries out every remedy that can be carried out on a simulated node, by an ordinary user. With the race detector it does
// so for one script: no program runs beside another there.
func TestRemedies(t *testing.T) {
	captures, err := filepath.Abs("../../pkg/ring/testdata")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob(remedyScripts + "/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if long.Race {
		scripts = scripts[:1]
	}
	testscript.Run(t, testscript.Params{
		Files:               scripts,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", raceAtEnd)
			env.Setenv("TABLES", captures)
			env.Setenv("LPUCTL_WITHIN", await.Limit.String())
			env.Setenv("LPUCTL_ROOT", "node")
			env.Values[current{}] = &remedy{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"finds": finds, "carry": carry, "edit": edit, "gone": gone},
	})
}

// current is the key of the remedy that a script carries out.
type current struct{}

// remedy is a finding that a command has printed, and what is to be done about it.
type remedy struct {
	id      string
	command []string // that printed it
	text    string
	file    string              // that the finding names
	line    string              // in file; "": the file as a whole
	before  map[string][]string // the findings that were printed, by id
}

var (
	printedFinding = regexp.MustCompile(`(?m)^ *(error|warning|note): (.*) \[([a-z-]+)\]\n *remedy: (.*)$`)
	printedLine    = regexp.MustCompile(`(?:^|: )([^ :]+):(\d+): `)
	printedFile    = regexp.MustCompile(`(?:^|: )([^ :]*\.[^ :]*): `)
	printedCommand = regexp.MustCompile(`^(lpuctl|chmod|chown|rm|mv|echo|modprobe|mknod|mkdir) `)
)

// finds runs a command and wants it to print a finding with this id.
func finds(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(current{}).(*remedy)
	if r.id != "" {
		ts.Fatalf("%s is not gone yet", r.id)
	}
	*r = remedy{id: args[0], command: args[1:]}
	r.before = r.printed(ts)
	m := r.before[r.id]
	if m == nil {
		ts.Fatalf("%v does not find %s", r.command, r.id)
	}
	r.text = m[4]
	if place := printedLine.FindStringSubmatch(m[2]); place != nil {
		r.file, r.line = place[1], place[2]
	} else if place := printedFile.FindStringSubmatch(m[2]); place != nil {
		r.file = place[1]
	}
}

// printed runs the command, and returns the findings that it prints, by id. The exit code does not matter, because a note does not
// change it.
func (r *remedy) printed(ts *testscript.TestScript) map[string][]string {
	if err := ts.Exec(r.command[0], r.command[1:]...); err != nil {
		ts.Logf("%v", err)
	}
	findings := map[string][]string{}
	for _, m := range printedFinding.FindAllStringSubmatch(ts.ReadFile("stdout")+ts.ReadFile("stderr"), -1) {
		if findings[m[3]] == nil {
			findings[m[3]] = m
		}
	}
	return findings
}

// carry runs the commands of the remedy as they were printed. They stand between semicolons or after a colon. Exit code 3 is fine:
// the command worked, and has found something else.
func carry(ts *testscript.TestScript, _ bool, _ []string) {
	r := ts.Value(current{}).(*remedy)
	commands := commandsOf(r.text)
	if len(commands) == 0 {
		ts.Fatalf("%s: the remedy has no command: %s", r.id, r.text)
	}
	for _, command := range commands {
		if err := ts.Exec("sh", "-c", command); err != nil && err.Error() != "exit status 3" {
			ts.Fatalf("%s: %v", command, err)
		}
	}
}

func commandsOf(text string) (commands []string) {
	for _, clause := range regexp.MustCompile(`; |: |, or `).Split(text, -1) {
		if printedCommand.MatchString(clause) {
			commands = append(commands, clause)
		}
	}
	return commands
}

// edit edits the line that the finding names, or the whole file where it names none.
func edit(ts *testscript.TestScript, _ bool, args []string) {
	r := ts.Value(current{}).(*remedy)
	if r.file == "" {
		ts.Fatalf("%s names no file", r.id)
	}
	ts.Check(ts.Exec("sed", "-i", r.line+args[0], r.file))
}

// gone wants the command to print the finding no more, and no error instead that was not there before, except those whose ids are given.
func gone(ts *testscript.TestScript, _ bool, instead []string) {
	r := ts.Value(current{}).(*remedy)
	for id, m := range r.printed(ts) {
		isNew := r.before[id] == nil && !slices.Contains(instead, id)
		if id == r.id || m[1] == string(finding.Error) && isNew {
			ts.Fatalf("after the remedy %q there is %s", r.text, m[0])
		}
	}
	*r = remedy{}
}

// remediesElsewhere are the tests that carry out remedies that need more than a simulated node: the file, and what stands in it.
func remediesElsewhere() map[finding.ID]string {
	const leases, arbiter = "cmd/lpuctl/lease_test.go ", "internal/lease/arbiter_test.go "
	const machine, containerd = "test/vm/guest/run.sh ", "test/e2e/containerd/check_test.go "
	const checks = "internal/doctor/"
	return map[finding.ID]string{
		finding.DevCharMissing:   checks + "host_test.go TestDevChars",
		finding.LeaseClosed:      leases + "TestKubernetesNeedsAPool",
		finding.LeaseLimit:       leases + "TestLimits",
		finding.LeaseNoneFree:    arbiter + "TestALeaseIsTheConnection",
		finding.LeaseImpossible:  arbiter + "TestImpossibleWishes",
		finding.LeaseUnknown:     arbiter + "TestReservations",
		finding.LeaseUnrecorded:  arbiter + "TestAFullDisk",
		finding.LeaseRecords:     "internal/lease/record_test.go TestJunkIsPutAside",
		finding.ClaimFile:        "internal/dra/claim/disk_test.go TestDirectoriesThatCannotBeWritten",
		finding.ClaimRecord:      "internal/dra/claim/store_test.go TestBadRecords",
		finding.GivenTwice:       "test/e2e/kubelet/dra_twice_test.go TestDRABesidePrevious",
		finding.LeaseBusy:        arbiter + "TestTooManyLeases",
		finding.LeaseUser:        "internal/lease/welcome_test.go TestStrangers",
		finding.LeaseNoUsage:     "internal/lease/ledger_test.go TestUsage",
		finding.LeaseUsage:       "internal/lease/ledger_test.go TestUsageThatCannotBeWritten",
		finding.LeaseNoContainer: arbiter + "TestNothingIsLeasedThatIsInUse",
		finding.NoDriver:         machine + "mended no-driver",
		finding.WrongDriver:      machine + "mended wrong-driver",
		finding.PassedThrough:    machine + "mended passed-through",
		finding.NodeMissing:      machine + "mended node-missing", // of an LPU; the one of a spec is in a script
		finding.NodeMismatch:     machine + "mended node-mismatch",
		finding.UsersHidden:      "test/e2e/allocate_test.go TestOrdinaryUser",
		finding.RestartNeeded:    containerd + "before the restart that the edits",
		finding.SocketMissing:    containerd + "TestRuntimeCheck", // which starts the daemon
		finding.ConfigUnknown:    containerd + "before it is started",
		finding.CRINotJudged:     "test/e2e/containerd/corpus_test.go the running daemon does not tell",
	}
}

// remediesInWords are those that no test can carry out, and why.
func remediesInWords() map[finding.ID]string {
	const (
		hardware = "needs the card or its driver: a reset, a flash or another card"
		looking  = "something outside of lpuctl is out of order, and the remedy says where to look"
		nothing  = "nothing is to be done"
	)
	return map[finding.ID]string{
		finding.AppArmorDenies:      "needs a kernel with AppArmor; TestAppArmor has the profile without the rule",
		finding.SELinuxDenies:       "needs a kernel with SELinux; TestSELinux has the boolean and the type that the remedy sets",
		finding.KubeletAway:         "needs systemd and a kubelet; TestRegistration has the kubelet that answers",
		finding.PluginUnregistered:  "needs systemd and a kubelet; TestRegistration has the list of the kubelet",
		finding.DRAUnregistered:     "the DRA driver makes its sockets anew when it starts: TestDriving",
		finding.UnitDown:            "needs systemd and the package; TestOwnUnits has the unit that runs",
		finding.HostLacks:           "needs another host",
		finding.ClaimOverlap:        "pods of a cluster are to be deleted",
		finding.LeaseEnded:          nothing,
		finding.LeaseNoStore:        "needs systemd and the package",
		finding.LeaseOver:           "a container is to be stopped: TestContainersEnd",
		finding.LeaseUnclear:        "needs a node that can be opened: TestHidden, TestAnLPUThatIsUnclear",
		finding.LeaseRequest:        "needs two versions of lpuctl, of which one is a unit of systemd",
		finding.LeaseUnreachable:    "needs systemd and the package",
		finding.NoAnswer:            hardware,
		finding.RingTableStale:      "pods of a cluster are to be deleted",
		finding.RingTablePart:       "other devices are to be asked for (explain.txtar does)",
		finding.AERCorrectable:      hardware,
		finding.AERFatal:            hardware,
		finding.AERNonFatal:         hardware,
		finding.BadState:            hardware,
		finding.ECCUncorrectable:    hardware,
		finding.Firewall:            hardware,
		finding.Hot:                 hardware,
		finding.LinkDegraded:        hardware,
		finding.NoHostMemory:        hardware,
		finding.NotCalibrated:       hardware,
		finding.PowerLost:           hardware,
		finding.PortErrors:          hardware,
		finding.RecoveryFailed:      hardware,
		finding.ResetBehindDriver:   hardware,
		finding.Asleep:              nothing,
		finding.UeventsSilent:       nothing,
		finding.Rebound:             "containers are to be started again, whoever runs them",
		finding.InRecovery:          "waiting is enough: TestRecovery",
		finding.Recovered:           "waiting is enough: TestRecovery",
		finding.NodeUnverified:      "needs root to make /dev",
		finding.Gone:                hardware,
		finding.NotReady:            hardware,
		finding.Offline:             hardware,
		finding.ReadStalled:         hardware,
		finding.RecoveryShell:       hardware,
		finding.SharedNode:          hardware,
		finding.CardWithoutLPU:      hardware,
		finding.FactoryImage:        hardware,
		finding.Recovering:          "waiting is enough: TestHysteresis",
		finding.NotInSpec:           "the log of serve has the reason, with its own remedy",
		finding.UnreadableAttribute: looking,
		finding.UnreadableClass:     looking,
		finding.UnreadableFunction:  looking,
		finding.OddPCIEntry:         looking,
		finding.BesideKubernetes:    "a pod of the cluster is to ask for them",
		finding.HeldByOther:         "a pod of the cluster is to end",
		finding.OwnerDRA:            "only the device plugin finds it, see testdata/script/owner.txtar",
		finding.OwnerPlugin:         "only the DRA driver finds it",
		finding.OwnerUnsettled:      "waits for the kubelet, or for the DRA driver's checkpoint",
		finding.OtherPlugin:         "a DaemonSet of the cluster is to be kept off the node",
		finding.MemlockLow:          "root has to raise the limit, and the user to log in again",
		finding.MountStalled:        looking,
		finding.FilesStalled:        looking,
		finding.RingOrder:           nothing,
		finding.DeviceUnknown:       "what was asked for is to be corrected, not the node",
		finding.ForeignSpec:         "the maker of the file has to correct it",
		finding.CDISource:           nothing,
		finding.CDIUnknown:          "needs systemd and the package; TestResultFileIsFollowed has what a new result changes",
		finding.KubeletSocket:       nothing,
		finding.CRIFailed:           looking,
		finding.CRISilent:           looking,
		finding.SocketNoAnswer:      looking,
		finding.SocketForeign:       looking,
		finding.SocketDenied:        "another user has to ask",
		finding.SocketRefused:       "the daemon is to be started, as for socket-missing",
		finding.RestartChanges:      "repeats the remedy of what the config file would do after a restart, such as cdi-off",
		finding.VersionUnknown:      "the program itself has to be asked",
	}
}

// TestEveryRemedyIsClassified: each id of the table has a script or a test elsewhere that carries out its remedy, or else a reason why
// no test can.
func TestEveryRemedyIsClassified(t *testing.T) {
	scripts, err := filepath.Glob(remedyScripts + "/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts in %s: %v", remedyScripts, err)
	}
	carried := map[finding.ID]string{}
	for _, script := range scripts {
		text := readText(t, script)
		found := regexp.MustCompile(`(?m)^finds (\S+)`).FindAllStringSubmatch(text, -1)
		if len(found) != len(regexp.MustCompile(`(?m)^gone\b`).FindAllString(text, -1)) {
			t.Errorf("%s: each finds needs a gone", script)
		}
		for _, m := range found {
			carried[finding.ID(m[1])] = script
		}
	}
	for id, where := range remediesElsewhere() {
		carried[id] = where
		if file, text, _ := strings.Cut(where, " "); !strings.Contains(readText(t, filepath.Join("../..", file)), text) {
			t.Errorf("%s: there is no %q in %s", id, text, file)
		}
	}
	inWords := remediesInWords()
	for _, group := range finding.Groups() {
		for _, rule := range group.Rules {
			if (carried[rule.ID] == "") == (inWords[rule.ID] == "") {
				t.Errorf("%s: add a script to %s, or a row to remediesElsewhere or remediesInWords: there is %q and %q",
					rule.ID, remedyScripts, carried[rule.ID], inWords[rule.ID])
			}
			delete(carried, rule.ID)
			delete(inWords, rule.ID)
		}
	}
	for id := range carried {
		t.Errorf("%s is not in the table of findings", id)
	}
	for id := range inWords {
		t.Errorf("%s is not in the table of findings", id)
	}
}

// TestCommandsInRemedies: lpuctl has each of its commands that the table of findings names.
func TestCommandsInRemedies(t *testing.T) {
	root := newRootCommand(&app{})
	named := 0
	for _, group := range finding.Groups() {
		for _, rule := range group.Rules {
			for _, m := range regexp.MustCompile(`lpuctl ([a-z]+)( [a-z]+)?`).FindAllStringSubmatch(rule.Remedy, -1) {
				named++
				found, rest, err := root.Find(strings.Fields(m[1] + m[2]))
				if err != nil || found == root || found.HasSubCommands() && len(rest) > 0 {
					t.Errorf("%s: there is no lpuctl %s%s: %v", rule.ID, m[1], m[2], err)
				}
			}
		}
	}
	if named == 0 {
		t.Error("no remedy names a command")
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
