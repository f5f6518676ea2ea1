package plugin

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/finding"
	"github.com/hyperaccel/lpuctl/pkg/pci"
)

const claimUID = "0d8ef4a5-1f0c-4f62-9f6d-0b1a3a6a8b01"

// claimed adds a pod whose container has a claim with these devices: the names of their CDI devices.
func (l *podLister) claimed(pod, claim string, devices map[string][]string, order ...string) {
	r := &podresources.DynamicResource{ClaimNamespace: "ml", ClaimName: claim}
	for _, name := range order {
		one := &podresources.ClaimResource{DriverName: "lpu.hyperaccel.ai", PoolName: "node", DeviceName: name}
		for _, cdiName := range devices[name] {
			one.CdiDevices = append(one.CdiDevices, &podresources.CDIDevice{Name: cdiName})
		}
		r.ClaimResources = append(r.ClaimResources, one)
	}
	r.ClaimResources = append(r.ClaimResources, &podresources.ClaimResource{
		DriverName: "nic.example.com", DeviceName: "nic", CdiDevices: []*podresources.CDIDevice{{Name: "example.com/nic=pci-0000-4a-00.1"}},
	})
	l.pods = append(l.pods, &podresources.PodResources{Name: pod, Namespace: "ml", Containers: []*podresources.ContainerResources{
		{Name: "main", DynamicResources: []*podresources.DynamicResource{r}},
	}})
}

func said(t *testing.T, l *podLister) *Said {
	t.Helper()
	dir := t.TempDir()
	l.serve(t, dir)
	answer, err := (&Pods{Socket: filepath.Join(dir, "pods")}).Ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func lpus(t *testing.T, ids ...string) (all []pci.Address) {
	t.Helper()
	for _, id := range ids {
		a, err := cdi.ParseAddressName(id)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// TestClaims: of a claim it is known which requests have which LPUs, of whichever kind; two pods that
// share it are one claim. Other drivers'
// devices are not ours.
func TestClaims(t *testing.T) {
	l := &podLister{}
	devices := map[string][]string{
		"lpu2-a": {"hyperaccel.ai/lpu=" + orionIDs[0], "hyperaccel.ai/lpu=" + orionIDs[1], cdi.ClaimKind + "=claim-" + claimUID + "-big-one"},
		"lpu1-b": {"example.com/card=" + orionIDs[3]},
		"lpu1-c": {"example.com/card=" + orionIDs[5], cdi.ClaimKind + "=claim-" + claimUID + "-more"},
	}
	l.claimed("a", "job", devices, "lpu2-a", "lpu1-b")
	l.claimed("b", "job", devices, "lpu2-a", "lpu1-b", "lpu1-c")
	l.claimed("c", "strange", map[string][]string{"gpu": {"nvidia.com/gpu=pci-0000-43-00.1"}}, "gpu")
	answer := said(t, l)
	want := []cdi.Claim{{Namespace: "ml", Name: "job", UID: claimUID, Requests: []cdi.ClaimRequest{
		{Name: "big-one", List: true, Devices: []cdi.ClaimDevice{
			{Name: "lpu2-a", LPUs: lpus(t, orionIDs[0], orionIDs[1])}, {Name: "lpu1-b", LPUs: lpus(t, orionIDs[3])},
		}},
		{Name: "more", List: true, Devices: []cdi.ClaimDevice{{Name: "lpu1-c", LPUs: lpus(t, orionIDs[5])}}},
	}}}
	if diff := cmp.Diff(want, answer.Claims()); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if twice := answer.Twice(); len(twice) > 0 {
		t.Errorf("given twice: %v", twice)
	}
}

// TestGivenTwice: an LPU that a pod has by the plugin and another by a claim, or two by two claims, is named with both pods and what to do.
func TestGivenTwice(t *testing.T) {
	l := &podLister{}
	one := func(uid string, ids ...string) map[string][]string {
		names := []string{cdi.ClaimKind + "=claim-" + uid + "-lpus"}
		for _, id := range ids {
			names = append(names, "hyperaccel.ai/lpu="+id)
		}
		return map[string][]string{"x": names}
	}
	l.run("default", "plain", ids(0, 1)...)
	l.claimed("first", "job", one(claimUID, orionIDs[1], orionIDs[2]), "x")
	l.claimed("second", "other", one(strings.Replace(claimUID, "0d", "1d", 1), orionIDs[2]), "x")
	got := map[string]finding.Finding{}
	for a, f := range said(t, l).Twice() {
		got[cdi.AddressName(a)] = f
	}
	want := map[string]finding.Finding{
		orionIDs[1]: finding.New(finding.GivenTwice, "", "pod default/plain has it by the device plugin, and pod ml/first has it by claim ml/job",
			"delete one of them: kubectl --namespace default delete pod plain, or kubectl --namespace ml delete pod first"),
		orionIDs[2]: finding.New(finding.GivenTwice, "", "pod ml/first has it by claim ml/job, and pod ml/second has it by claim ml/other",
			"delete one of them: kubectl --namespace ml delete pod first, or kubectl --namespace ml delete pod second"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("given twice (-want +got):\n%s", diff)
	}
}
