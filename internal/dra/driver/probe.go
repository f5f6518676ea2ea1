package driver

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hyperaccel/lpuctl/internal/dra"
)

// probe finds out what the API server stores of a slice, by slices that it only pretends
// to create. One that does not know a field, or has its feature gate off, drops it
// without an error.
func (p *publication) probe(ctx context.Context) (mode, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	one := map[string]resourceapi.Counter{"lpus": {Value: resource.MustParse("1")}}
	counters, err := p.pretend(ctx, resourceapi.ResourceSliceSpec{SharedCounters: []resourceapi.CounterSet{{Name: "lpus", Counters: one}}})
	if err != nil {
		return unknown, err
	}
	devices, err := p.pretend(ctx, resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{
		Name:             "probe",
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{CounterSet: "lpus", Counters: one}},
		Taints:           []resourceapi.DeviceTaint{{Key: dra.TaintHeld, Effect: resourceapi.DeviceTaintEffectNoSchedule}},
	}}})
	switch {
	case err != nil:
		return unknown, err
	case len(devices.Devices) != 1 || len(devices.Devices[0].Taints) != 1:
		return withheld, nil
	case len(counters.SharedCounters) != 1 || len(devices.Devices[0].ConsumesCounters) != 1:
		return singles, nil
	}
	return arcs, nil
}

// pretend returns what the API server would store.
func (p *publication) pretend(ctx context.Context, spec resourceapi.ResourceSliceSpec) (*resourceapi.ResourceSliceSpec, error) {
	spec.Driver, spec.NodeName = dra.DriverName, &p.Name
	spec.Pool = resourceapi.ResourcePool{Name: p.Name, Generation: 1, ResourceSliceCount: 2}
	slice, err := p.Client.ResourceV1().ResourceSlices().Create(ctx, &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-" + dra.DriverName + "-"}, Spec: spec,
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	return &slice.Spec, nil
}
