package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/features"
)

// node is the name of this node in the cluster, and where it is from. Without --node-name
// it is what a kubelet without --hostname-override takes: the host name in lower case. In
// a pod that is the name of the pod.
func (a *app) node() (name, from string) {
	if a.NodeName != "" {
		return a.NodeName, "--node-name"
	}
	name, _ = os.Hostname() // "" matches no entry
	return strings.ToLower(strings.TrimSpace(name)), "the host name"
}

// network returns the labels that the config file has for this node, and which entry has
// them: "config.yaml:7"; "" if none has. The error is that several do.
func (a *app) network() (labels map[string]string, entry string, err error) {
	name, from := a.node()
	place := func(i int) string { return a.Config.Origin(fmt.Sprint("topology.", i)) }
	labels, i, err := a.Config.Topology.Labels(name)
	if both, ok := errors.AsType[*features.AmbiguousError](err); ok {
		return nil, "", cli.Fail(cli.ExitFailed, "change nodes of one of them, so that it does not match "+name,
			"topology: two entries match node %s (by %s): those of %s and %s", name, from, place(both.First), place(both.Second))
	}
	if i >= 0 {
		entry = place(i)
	}
	return labels, entry, err
}

// checkNetwork returns an error if it cannot be known which labels of the network the
// feature file of a configuration has.
func (a *app) checkNetwork(c cli.ServeConfig) (err error) {
	if c.NFD != "" {
		_, _, err = a.network()
	}
	return err
}

// featurePlan is the plan of a configuration. If two entries of topology match this node
// the file in place is left as it is, so that a start does not take the node out of its
// topology at once, and the log says so: no LPU is withheld for that.
func (a *app) featurePlan(c cli.ServeConfig) features.Plan {
	lifetime, _ := time.ParseDuration(c.NFDExpiry) // check has seen that it is one
	if c.NFD == "" {
		return features.Plan{}
	}
	network, entry, err := a.network()
	name, from := a.node()
	switch {
	case err != nil:
		a.Log.Error("it is not known where in the network the node is: the feature file stays as it is, and its LPUs are served", "error", err)
		return features.Plan{}
	case len(a.Config.Topology) == 0:
	case entry == "":
		a.Log.Warn("no entry of topology in the config file matches this node", "node", name, "name is from", from)
	default:
		a.Log.Info("the place in the network", "node", name, "name is from", from, "entry", entry)
	}
	return features.Plan{Path: c.NFD, Lifetime: lifetime, Network: network}
}
