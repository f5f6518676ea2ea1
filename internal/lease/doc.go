// Package lease lets many people share the LPUs of one node. An arbiter, which is root's,
// gives LPUs to who asks for them over a socket: a lease is the open connection, and a
// reservation is a record. [Dial] is what its clients use.
package lease
