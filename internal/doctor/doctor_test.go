package doctor_test

import (
	"context"
	"encoding/xml"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hyperaccel/lpuctl/internal/doctor"
	"github.com/hyperaccel/lpuctl/pkg/finding"
)

func answer(link doctor.Link, r doctor.Result) doctor.Check {
	return doctor.Check{Link: link, About: "the " + string(link), Run: func(context.Context) doctor.Result { return r }}
}

func of(ids ...finding.ID) (all finding.List) {
	for _, id := range ids {
		all.Add(id, "lpu3", "it is "+string(id), "")
	}
	return all
}

// TestStates: a link is as the worst of its checks, stands in its place, and follows only if all that is wrong with it does.
func TestStates(t *testing.T) {
	unseen := doctor.Unable("who listens", fs.ErrPermission)
	for name, c := range map[string]struct {
		checks []doctor.Check
		want   string // the links with their states
	}{
		"in the order of the way": {
			[]doctor.Check{answer(doctor.Spec, doctor.Result{Says: "a"}), answer(doctor.Card, doctor.Result{Says: "b"})}, "card=well spec=well",
		},
		"a warning": {[]doctor.Check{answer(doctor.Spec, doctor.Result{Findings: of(finding.SpecMode)})}, "spec=warning"},
		"a note":    {[]doctor.Check{answer(doctor.Spec, doctor.Result{Findings: of(finding.ForeignSpec)})}, "spec=well"},
		"what cannot be seen is not well": {
			[]doctor.Check{answer(doctor.Owner, unseen), answer(doctor.Owner, doctor.Result{Says: "none cordoned"})}, "owner=unknown",
		},
		"one of two is absent": {
			[]doctor.Check{answer(doctor.Owner, doctor.Result{Absent: "no"}), answer(doctor.Owner, doctor.Result{Says: "yes"})}, "owner=well",
		},
		"absent": {[]doctor.Check{answer(doctor.Kubelet, doctor.Result{Absent: "no kubelet"})}, "kubelet=absent"},
		"follows": {
			[]doctor.Check{
				answer(doctor.Driver, doctor.Result{Findings: of(finding.NoDriver)}),
				answer(doctor.Spec, doctor.Result{Findings: of(finding.SetWrong, finding.StaleDevice)}),
			}, "driver=broken spec=follows",
		},
		"part of it does not follow": {
			[]doctor.Check{
				answer(doctor.Driver, doctor.Result{Findings: of(finding.NoDriver)}),
				answer(doctor.Spec, doctor.Result{Findings: of(finding.SetWrong, finding.SpecSyntax)}),
			}, "driver=broken spec=broken",
		},
		"nothing is broken before": {[]doctor.Check{answer(doctor.Spec, doctor.Result{Findings: of(finding.SetWrong)})}, "spec=broken"},
		"fewer because of the driver": {
			[]doctor.Check{
				answer(doctor.Driver, doctor.Result{Findings: of(finding.NoDriver)}), answer(doctor.Node, doctor.Result{Says: "7 of 8", Part: true}),
			}, "driver=broken device-file=follows",
		},
		"a cause that only follows itself breaks no other link": {
			[]doctor.Check{
				answer(doctor.Card, doctor.Result{Findings: of(finding.Gone)}),
				answer(doctor.Spec, doctor.Result{Findings: of(finding.NodeMissing)}),
				answer(doctor.Runtime, doctor.Result{Findings: of(finding.CDIOff)}),
			}, "card=broken spec=follows runtime=broken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range doctor.Diagnose(t.Context(), doctor.Limit, c.checks).Steps {
				got = append(got, string(s.Link)+"="+string(s.State))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%s, not %s", text, c.want)
			}
		})
	}
}

// TestALinkThatHangs costs its own answer only, and Limit.
func TestALinkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, free := time.Now(), make(chan struct{})
		d := doctor.Diagnose(t.Context(), doctor.Limit, []doctor.Check{
			answer(doctor.Card, doctor.Result{Says: "8"}),
			{Link: doctor.Runtime, About: "the runtimes", Run: func(context.Context) doctor.Result { <-free; return doctor.Result{} }},
		})
		close(free)
		if took := time.Since(began); took != doctor.Limit {
			t.Errorf("it took %v", took)
		}
		if d.Steps[0].State != doctor.Well || d.Steps[1].State != doctor.Unknown || !strings.Contains(d.Steps[1].Unseen[0].String(), "3s") {
			t.Errorf("%+v", d.Steps)
		}
	})
}

// TestFixes: what is broken is mended in the order of the links, each command once. Nothing is run for what only follows, what has to be
// done by hand, or what is in use.
func TestFixes(t *testing.T) {
	broken := func(id finding.ID, subject, remedy string) finding.List {
		return finding.List{finding.New(id, subject, "broken", remedy)}
	}
	d := doctor.Diagnose(t.Context(), doctor.Limit, []doctor.Check{
		answer(doctor.Driver, doctor.Result{Findings: slices.Concat(
			broken(finding.NoDriver, "lpu1", "modprobe xocl; echo 1 > /sys/bus/pci/drivers_probe"),
			broken(finding.NoDriver, "lpu2", "modprobe xocl; echo 2 > /sys/bus/pci/drivers_probe"),
			broken(finding.NoDriver, "lpu3", "modprobe DRIVER"), of(finding.Rebound))}),
		answer(doctor.Spec, doctor.Result{Findings: broken(finding.SetWrong, "lpu1", "lpuctl cdi refresh")}),
		answer(doctor.Runtime, doctor.Result{Findings: broken(finding.CDIOff, "docker", "edit it: systemctl restart docker, or do without")}),
	})
	var got []string
	for _, f := range d.Fixes(func(subject string) string {
		if subject == "lpu2" {
			return "in use"
		}
		return ""
	}) {
		got = append(got, f.Finding.Subject+": "+strings.Join(append(f.Commands, f.Kept), "; "))
	}
	want := []string{
		"lpu1: modprobe xocl; echo 1 > /sys/bus/pci/drivers_probe; ", "lpu2: echo 2 > /sys/bus/pci/drivers_probe; in use", "lpu3: ",
		"docker: systemctl restart docker; ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nnot %q", got, want)
	}
}

// TestJUnit: a broken link is a failure, and what was not looked at is skipped.
func TestJUnit(t *testing.T) {
	var text strings.Builder
	if err := doctor.Diagnose(t.Context(), doctor.Limit, []doctor.Check{
		answer(doctor.Driver, doctor.Result{Findings: of(finding.NoDriver), Says: "<7 of 8>"}),
		answer(doctor.Node, doctor.Result{Says: "7 of 8", Part: true}),
		answer(doctor.Spec, doctor.Result{Findings: of(finding.SpecMode)}),
		answer(doctor.Kubelet, doctor.Result{Absent: "no kubelet"}),
		answer(doctor.Leases, doctor.Unable("leases", errors.New("it hangs"))),
	}).WriteJUnit(&text); err != nil {
		t.Fatal(err)
	}
	var read struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	if err := xml.Unmarshal([]byte(text.String()), &read); err != nil {
		t.Fatal(err, text.String())
	}
	if read.Tests != 5 || read.Failures != 2 || read.Skipped != 2 {
		t.Error(text.String())
	}
}
