// Package broken is a list of nodes that are broken by commands, each with what is to be found first and what mends it. Its tests
// ask the program, carry out what it prints, and ask again. They know nothing of how nodes are simulated or findings are made: they
// import neither.
package broken
