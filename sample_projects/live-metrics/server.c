/*
 * A shop on the web, on the loopback interface only.
 *
 *     server PORT             serves until it is ended
 *     server --self-test      orders, switches and reads its own page; exit code 0 if all is right
 *
 *     GET /order/apple/3      what three apples cost
 *     GET /metrics            the program's probes as counters
 *     GET /on/PATTERN         switches probes on, for example /on/shop:*
 *     GET /off/PATTERN        and off
 *
 * Probes that are off cost nothing. Who may switch them is for a real server to decide.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "metrics.h"
#include "shop.h"
#include "usdt_live.h"

enum { ROOM = 65536 };

static int answer(const char *path, char *text, size_t size)
{
	char what[64];
	int count, result;

	if (sscanf(path, "/order/%63[a-z]/%d", what, &count) == 2)
		return snprintf(text, size, "%ld\n", shop_order(what, count));
	if (!strcmp(path, "/metrics"))
		return metrics_page(text, size);
	if (!strncmp(path, "/on/", 4))
		result = usdt_live_probe_on(path + 4, NULL, NULL);
	else if (!strncmp(path, "/off/", 5))
		result = usdt_live_probe_off(path + 5);
	else
		return -1;
	if (result < 0)
		return snprintf(text, size, "%s\n", usdt_live_error(result));
	return snprintf(text, size, "%d\n", result);
}

static void serve(int client)
{
	static char request[4096], body[ROOM];
	char head[128], path[1024] = "";
	ssize_t got = read(client, request, sizeof request - 1);
	int length;

	if (got <= 0)
		return;
	request[got] = '\0';
	sscanf(request, "GET %1023s", path);
	length = answer(path, body, sizeof body);
	length = length < (int)sizeof body ? length : (int)sizeof body - 1;
	snprintf(head, sizeof head, "HTTP/1.0 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
		length < 0 ? "404 Not Found" : "200 OK", length < 0 ? 0 : length);
	if (write(client, head, strlen(head)) < 0 || (length > 0 && write(client, body, (size_t)length) < 0))
		perror("server: write");
}

static int listen_on(int port)
{
	struct sockaddr_in address;
	int yes = 1, server = socket(AF_INET, SOCK_STREAM, 0);

	memset(&address, 0, sizeof address);
	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	address.sin_port = htons((unsigned short)port);
	setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
	if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 16)) {
		perror("server");
		return -1;
	}
	return server;
}

static int counted(const char *name)
{
	return (int)usdt_live_count(USDT_LIVE_PROBES, name);
}

static int self_test(void)
{
	static char text[ROOM];
	int right = 1, i;

	answer("/order/apple/3", text, sizeof text);
	right &= !strcmp(text, "120\n") && counted("shop:order-start") == 0;
	right &= answer("/on/shop:*", text, sizeof text) > 0 && atoi(text) >= 2;
	for (i = 0; i < 10; i++)
		answer("/order/melon/2", text, sizeof text);
	right &= counted("shop:order-start") == 10 && counted("shop:order-done") == 10;
	answer("/metrics", text, sizeof text);
	right &= strstr(text, "probe=\"shop:order__done\"") != NULL && strstr(text, "on=\"1\"} 10\n") != NULL;
	answer("/off/*", text, sizeof text);
	answer("/order/melon/2", text, sizeof text);
	right &= counted("shop:*") == 20;
	puts(right ? "right" : "wrong");
	return !right;
}

int main(int argc, char **argv)
{
	int server, client;

	if (argc == 2 && !strcmp(argv[1], "--self-test"))
		return self_test();
	if (argc != 2 || atoi(argv[1]) <= 0) {
		fputs("usage: server PORT | --self-test\n", stderr);
		return 2;
	}
	server = listen_on(atoi(argv[1]));
	if (server < 0)
		return 1;
	while ((client = accept(server, NULL, NULL)) >= 0) {
		serve(client);
		close(client);
	}
	return 1;
}
