package plan

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// warnings are what is odd about slices and claims.
func (c *cluster) warnings() (warnings Faults) {
	pools := map[string][]object[resourceapi.ResourceSlice]{}
	for _, s := range c.in.slices {
		name := s.it.Spec.Driver + "/" + s.it.Spec.Pool.Name
		pools[name] = append(pools[name], s)
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		warnings = append(warnings, warnOfPool(name, pools[name])...)
	}
	return append(warnings, c.warnOfClaims()...)
}

// warnOfPool says that a pool is incomplete: a driver is writing it, or the dump is not
// whole. The scheduler passes over it.
func warnOfPool(name string, all []object[resourceapi.ResourceSlice]) (warnings Faults) {
	newest := all[0]
	for _, s := range all {
		if s.it.Spec.Pool.Generation > newest.it.Spec.Pool.Generation {
			newest = s
		}
	}
	pool, here := newest.it.Spec.Pool, int64(0)
	for _, s := range all {
		if s.it.Spec.Pool.Generation == pool.Generation {
			here++
		}
	}
	if here != pool.ResourceSliceCount {
		warnings = append(warnings, newest.fault("spec.pool",
			"dump all slices, and again if a driver is just writing: "+dumpAgain,
			"the pool %s is incomplete, so nothing of it can be allocated: %d of %d slices of its generation %d",
			name, here, pool.ResourceSliceCount, pool.Generation))
	}
	if node := newest.it.Spec.NodeName; newest.it.Spec.Driver == driver && (node == nil || *node != pool.Name) {
		who := "find out who wrote it: kubectl get resourceslice " + newest.it.Name + " -o yaml --show-managed-fields"
		warnings = append(warnings, newest.fault("spec.pool.name", who,
			"the pool %s is not named as its node: it is not from lpuctl-dra", name))
	}
	return warnings
}

// warnOfClaims says that a claim has a device that is not published any more: the
// scheduler takes its LPUs for free ones.
func (c *cluster) warnOfClaims() (warnings Faults) {
	published, pools := map[structured.DeviceID]bool{}, map[string]bool{}
	for _, s := range c.slices {
		if s.Spec.Driver != driver {
			continue
		}
		pools[s.Spec.Pool.Name] = true
		for i := range s.Spec.Devices {
			published[structured.MakeDeviceID(driver, s.Spec.Pool.Name, s.Spec.Devices[i].Name)] = true
		}
	}
	for _, claim := range c.in.known {
		if claim.it.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.it.Status.Allocation.Devices.Results {
			if r.Driver == driver && pools[r.Pool] && !published[structured.MakeDeviceID(r.Driver, r.Pool, r.Device)] {
				remedy := "delete the claim: kubectl -n " + claim.it.Namespace + " delete resourceclaim " + claim.it.Name
				warnings = append(warnings, claim.fault("status.allocation", remedy,
					"%s has the device %s, which %s does not publish: the scheduler takes its LPUs for free ones", nameOf(claim.it), r.Device, r.Pool))
			}
		}
	}
	return warnings
}
