// Inventory prints the LPUs of a node on stderr and the CDI spec of these LPUs on stdout. It uses
// the packages of lpuctl as any other program can:
//
//	go run ./examples/inventory > hyperaccel.ai-lpu.json
//	go run ./examples/inventory --root DIR    # a node that `lpuctl simulate DIR` has made
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/hyperaccel/lpuctl/pkg/cdi"
	"github.com/hyperaccel/lpuctl/pkg/discovery"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "inventory:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("inventory", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", "/", "look at the machine under `DIR`")
	if err := flags.Parse(args); err != nil {
		return err
	}

	// A broken card is no error of the scan: its LPU is in the inventory, with the reasons.
	inv, err := discovery.Scan(ctx, *root, discovery.Options{})
	if err != nil {
		return err
	}
	// Where it is not known of a card whether it is an LPU, the indices of the others are not known
	// either.
	if err := inv.Undecided(); err != nil {
		return err
	}
	if err := printLPUs(stderr, inv); err != nil {
		return err
	}

	// TablesIn leaves the ring tables of containers out that are not on this host. `lpuctl cdi
	// refresh` writes them. A spec that names a file which is not there makes no container.
	spec, findings, err := cdi.Spec(inv, cdi.Options{TablesIn: "/"})
	for _, f := range findings {
		fmt.Fprintln(stderr, f)
	}
	if err != nil {
		return err
	}
	data, err := cdi.Marshal(spec)
	if err != nil {
		return err
	}
	_, err = stdout.Write(data)
	return err
}

// printLPUs prints a line for each LPU, and then what is wrong with LPUs.
func printLPUs(w io.Writer, inv *discovery.Inventory) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tADDRESS\tMODEL\tUSABLE\tHEALTH")
	for i := range inv.LPUs {
		lpu := &inv.LPUs[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%t\t%s\n", lpu.Name, lpu.Address, lpu.Model, lpu.Usable, lpu.Health)
	}
	err := table.Flush()
	for i := range inv.LPUs {
		for _, reason := range inv.LPUs[i].Reasons {
			fmt.Fprintln(w, reason)
		}
	}
	return err
}
