package main

func internalCertify() []mutation {
	return []mutation{
		{
			name:    "a card that does not answer refutes what its driver would say",
			fix:     `return !read || text != "0"`,
			without: `return read && text != "0"`,
			test:    "TestFaults",
		},
		{
			name:    "a card that contradicts is outvoted",
			fix:     "case len(t.bad) > 0:",
			without: "case len(t.bad) > len(t.good):",
			test:    "TestVerdicts",
		},
		{
			name:    "a fixture has serial numbers",
			fix:     "\tx.replaceSerials(inv)\n",
			without: "",
			test:    "TestFixture",
		},
		{
			name:    "a fixture says what else is in the machine",
			fix:     `return ours || strings.HasPrefix(p, "sys/class/")`,
			without: `return true || ours || strings.HasPrefix(p, "sys/class/")`,
			test:    "TestFixture",
		},
		{
			name:    "a fixture is written over a file",
			fix:     "os.O_CREATE|os.O_EXCL|",
			without: "os.O_CREATE|os.O_TRUNC|",
			test:    "TestFixtureIsNotWrittenOver",
		},
		{
			name:    "a certificate names serial numbers",
			fix:     `fmt.Sprintf("%d characters, not shown", len(serial.text))`,
			without: "serial.text",
			test:    "TestNoSerialNumber",
		},
	}
}
