package plugin

import (
	"context"
	"fmt"

	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// ClaimDevices returns the CDI devices that pods have by their claims, whatever driver they are of. They are those of the pods that the
// kubelet still runs.
func (p *Pods) ClaimDevices(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	var list *podresources.ListPodResourcesResponse
	err := p.connected(func(kubelet podresources.PodResourcesListerClient) (err error) {
		list, err = kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the kubelet does not say which pods have claims: %s", status.Convert(err).Message())
	}
	devices := map[string]bool{}
	for _, pod := range list.GetPodResources() {
		for _, c := range pod.GetContainers() {
			for _, claim := range c.GetDynamicResources() {
				for _, r := range claim.GetClaimResources() {
					for _, d := range r.GetCdiDevices() {
						devices[d.GetName()] = true
					}
				}
			}
		}
	}
	return devices, nil
}
