package main

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hyperaccel/lpuctl/cmd/internal/cli"
	"github.com/hyperaccel/lpuctl/internal/dra"
	"github.com/hyperaccel/lpuctl/internal/lease"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

func newSlicesCommand(a *app) *cobra.Command {
	var f cli.Format
	var sizes []int
	cmd := &cobra.Command{
		Use:   "slices",
		Short: "Print what the scheduler would be told of this node",
		Long: `slices prints the devices that serve would publish for this node, in the order in which the scheduler tries them: each run of
connected LPUs of a wanted size is a device. A device with a taint is given to no claim that does not tolerate it. LPUs that leases.pool of
the config file sets apart, or that a user has leased or reserved, are in no device.
-o json and yaml print the ResourceSlices as kubectl does, for lpuctl-dra plan --slices among others.

It needs no cluster and writes nothing. What was published before, such as devices of a former cabling, is not in it.`,
		Example: `  lpuctl-dra slices
  lpuctl-dra slices --sizes 1,2 -o yaml
  lpuctl-dra --root /tmp/node slices`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			inv, options, err := publishable(cmd, a, sizes)
			if err != nil {
				return err
			}
			specs := dra.Slices(inv, options)
			if f.IsDocument() {
				return a.WriteDocument(f, sliceList(specs))
			}
			return writeDevices(&a.Terminal, specs)
		},
	}
	a.FormatFlag(cmd, &f)
	sizesFlag(cmd, &sizes)
	cli.NodeNameFlag(cmd, &a.NodeName)
	a.RingTableFlag(cmd)
	return cmd
}

func sizesFlag(cmd *cobra.Command, sizes *[]int) {
	cmd.Flags().IntSliceVar(sizes, "sizes", nil,
		"publish runs of these `SIZES`, such as 1,2,4 (default: 1,2,4,8 and the whole ring, if usableSizes has them)")
	cli.FromEnvironment(cmd.Flags().Lookup("sizes"))
}

// publishable are the LPUs of this node as they would be published, and how.
func publishable(cmd *cobra.Command, a *app, sizes []int) (*discovery.Inventory, dra.Options, error) {
	options, err := draOptions(a, sizes)
	if err != nil {
		return nil, options, err
	}
	inv, memory, err := a.ScanOnly(cmd.Context(), discovery.Options{})
	if err == nil {
		err = inv.Undecided()
	}
	if err != nil {
		return nil, options, err
	}
	inv = lease.MarkOrWarn(a.Log, a.Root, memory.Dir, inv.WithCordons(memory.Cordons().Read()))
	if len(inv.LPUs) == 0 {
		return nil, options, cli.NoLPU(a.Root)
	}
	if len(inv.Rings) == 0 {
		a.Say("no ring table that can be used: it is not known which LPUs are connected, so only single LPUs are published")
	}
	return inv, options, nil
}

// draOptions are those of the flags.
func draOptions(a *app, sizes []int) (dra.Options, error) {
	o := dra.Options{
		Node: a.NodeName, Sizes: sizes,
		Sockets: func(inv *discovery.Inventory) map[int]int { return discovery.Sockets(string(a.Root), inv) },
	}
	if err := a.LoadConfig(); err != nil {
		return o, err
	}
	for _, size := range sizes {
		if size < 1 {
			return o, cli.Usage("--sizes: %d is not the size of a device", size)
		}
		for _, m := range a.Config.Models {
			if !m.UsableSizes.Allow(size) {
				a.Log.Warn("--sizes has a size that a program may not be able to use", "size", size, "model", m.Name, "usableSizes", m.UsableSizes)
			}
		}
	}
	if o.Node == "" {
		name, err := os.Hostname()
		o.Node = strings.ToLower(cmp.Or(name, "this-node"))
		return o, err
	}
	return o, cli.CheckNodeName(a.NodeName)
}

// sliceList is what kubectl prints of slices.
func sliceList(specs []resourceapi.ResourceSliceSpec) *resourceapi.ResourceSliceList {
	list := &resourceapi.ResourceSliceList{
		TypeMeta: metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSliceList"},
		Items:    []resourceapi.ResourceSlice{},
	}
	for i, spec := range specs {
		list.Items = append(list.Items, resourceapi.ResourceSlice{
			TypeMeta:   metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"},
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%05x-%s-%s", i, dra.DriverName, spec.Pool.Name)},
			Spec:       spec,
		})
	}
	return list
}

func writeDevices(t *cli.Terminal, specs []resourceapi.ResourceSliceSpec) error {
	var rows [][]string
	for d := range dra.Devices(specs) {
		rows = append(rows, deviceRow(d))
	}
	return t.WriteTable([]string{"DEVICE", "SIZE", "LPUS", "ADDRESSES", "ALIGNED", "NUMA", "SOCKET", "SWITCH", "TAINTS"}, rows)
}

func deviceRow(d *resourceapi.Device) []string {
	var taints []string
	for _, t := range d.Taints {
		taints = append(taints, strings.TrimPrefix(t.Key, dra.DriverName+"/")+"="+t.Value)
	}
	return []string{
		d.Name, strconv.Itoa(dra.Size(d)), attribute(d, "lpus"), joined(dra.MembersOf(d)), attribute(d, "aligned"),
		attribute(d, "resource.kubernetes.io/numaNode"), attribute(d, "topology.hyperaccel.ai/socket"),
		attribute(d, "topology.hyperaccel.ai/pcieSwitch"), strings.Join(taints, ","),
	}
}

// attribute is the value of an attribute, or nothing.
func attribute(d *resourceapi.Device, name resourceapi.QualifiedName) string {
	value := d.Attributes[name]
	switch {
	case value.IntValue != nil:
		return strconv.FormatInt(*value.IntValue, 10)
	case value.BoolValue != nil:
		return cli.YesNo(*value.BoolValue)
	case value.StringValue != nil:
		return *value.StringValue
	}
	return ""
}
