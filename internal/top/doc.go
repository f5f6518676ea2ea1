// Package top makes the screen of lpuctl top: what is known of the LPUs of a node at one
// moment, the keys by which people choose what they see of it, and the text that a
// terminal of a given size shows. It reads no file and no clock, and prints nothing.
//
// What is not known is nil or empty, "-" on the screen, and absent from documents. It is
// never 0.
package top
