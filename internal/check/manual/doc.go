// Package manual checks the documentation as its readers use it: it runs the shell blocks of all
// Markdown files, and reads the website in a browser.
//
// # Shell blocks
//
// Every block that begins with ```sh is run by bash, line by line, and every line has to succeed. The
// blocks of one file share a directory, in which no file is at first; each has a shell of its own.
// The program under test is on PATH. Three nodes run, and addresses in the text stand for theirs:
//
//	127.0.0.1:8081 or :8080, also with localhost, 10.0.0.1, host1 or node1    the first node, which leads
//	127.0.0.1:8082, 10.0.0.2:8080, host2:8080, node2:8080                     the second one
//	127.0.0.1:8083, 10.0.0.3:8080, host3:8080, node3:8080                     the third one
//	-p 8080 to -p 8083                                                        of redis-cli: the same nodes
//	:8090                                                                     a free port, for a proxy
//
// "go run ./cmd/isotone" is the program under test. "isotone dev", "serve" and "proxy" run beside the
// rest of the block, once they are ready; the next one of the block, and the end of it, ends them. A
// block with "isotone dev" or "isotone serve" has its nodes and not the others.
//
// Comments of Markdown directly before a block, one a line, say more about it:
//
//	<!-- not run: REASON -->      the block is not run
//	<!-- run: REASON -->          it is, although it has addresses of other machines: nothing is sent there
//	<!-- run: in the repository --> it is, in the root of the repository; "-o isotone" and GOBIN are elsewhere
//	<!-- before: COMMAND -->      a command that comes before it, and is not shown
//	<!-- prints: A … B -->        its output has A, and later B
//
// A block without a mark that is not run is a failure, and so is a mark without a block.
package manual
